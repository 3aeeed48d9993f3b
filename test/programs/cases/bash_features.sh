cat <<END | tr a-z A-Z | sed 's/HERE/there/' | sort -r
here is line one
here is line two
END
trap 'echo got usr1' USR1
kill -USR1 $$
trap 'echo leaving' EXIT
(sleep 0.05; exit 4) &
p=$!
wait $p
echo "background $?"
for i in 1 2 3 4 5; do (exit $i) & done
wait
diff <(printf 'a\nb\n') <(printf 'a\nc\n')
echo "pipe: $(false | true; echo ${PIPESTATUS[0]}${PIPESTATUS[1]})"
set -o pipefail
false | cat
echo "pipefail $?"
exec 5>out.txt; echo to five >&5; exec 5>&-; cat out.txt
read -r x y <<<"split me"; echo "$y $x"
mapfile -t lines < <(seq 5); echo "${#lines[@]}"
timeout 0.1 sleep 5; echo "timeout $?"
coproc cat; echo hi >&"${COPROC[1]}"; read -r r <&"${COPROC[0]}"; echo "co $r"
ulimit -n 64; ulimit -n
