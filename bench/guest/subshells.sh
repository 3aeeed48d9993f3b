#!/bin/bash
# BashSubshells: 200 subshells one after the other, every tenth with a pipeline, as scripts that
# compute with $(...) have them. Speaks the lines of bench.h; the time of one batch of 200, in ms,
# the median of three. Nothing is executed, so what is measured is fork, COW breaks, exit and wait.
#
#     /bin/bash subshells.sh [--ms N] [--dir NAME=PATH]... [ROW...]

readonly ROW=BashSubshells BATCHES=3 SUBSHELLS=200

# Microseconds, without the dot (or comma) of EPOCHREALTIME.
now_us() {
	now=${EPOCHREALTIME//[!0-9]/}
}

batch() {
	local i out sum=0

	for ((i = 0; i < SUBSHELLS; i++)); do
		if ((i % 10 == 0)); then
			out=$(echo "$i" | while read -r n; do echo $((n + 1)); done)
		else
			out=$(echo $((i + 1)))
		fi
		((sum += out))
	done
	((sum == SUBSHELLS * (SUBSHELLS + 1) / 2))
}

wanted=
while (($#)); do
	case $1 in
	--*) shift 2 ;;
	*)
		wanted="$wanted $1"
		shift
		;;
	esac
done
if [[ -n $wanted && " $wanted " != *" $ROW "* ]]; then
	exit 0
fi

if ! batch; then
	echo "fail $ROW the subshells' sum is wrong"
	exit 1
fi
echo "begin $ROW"
read -r _ || exit 2
now_us
begun=$now
times=()
for ((b = 0; b < BATCHES; b++)); do
	now_us
	start=$now
	if ! batch; then
		echo "fail $ROW the subshells' sum is wrong"
		exit 1
	fi
	now_us
	times+=($((now - start)))
done
elapsed=$((now - begun))
# The median of three is what is neither the least nor the greatest.
low=${times[0]} high=${times[0]} sum=0
for t in "${times[@]}"; do
	((t < low)) && low=$t
	((t > high)) && high=$t
	((sum += t))
done
median=$((sum - low - high))
printf 'end %s %d.%03d %d %d\n' "$ROW" $((median / 1000)) $((median % 1000)) \
	$((SUBSHELLS * BATCHES)) $((elapsed * 1000))
read -r _ || exit 2
