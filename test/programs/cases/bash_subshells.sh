sum=0
for i in $(seq 1 200); do
	v=$( (echo $((i * 2))) )
	sum=$((sum + v))
done
echo $sum
