sh -c 'echo one; exit 3'
echo "code $?"
sh -c 'echo $((6 * 7)); x=5; while [ $x -gt 0 ]; do x=$((x - 1)); printf "%s " $x; done; echo'
sh -c 'kill -TERM $$'
echo "killed $?"
