# needs: ps
ps -o pid= -p $$ | grep -c .
sleep 30 & p=$!
ps -o comm= -p $p; ps -o stat= -p $p | cut -c1
kill $p; wait $p; echo $?
cat /proc/self/comm; readlink /proc/self/exe | xargs basename; tr '\0' ' ' </proc/self/cmdline; echo
awk '{print NF}' /proc/self/stat; grep -c . /proc/self/status | awk '{print ($1 > 30)}'; cat /proc/self/maps | wc -l | awk '{print ($1 > 5)}'
free >/dev/null && echo free; uptime >/dev/null && echo uptime; cat /proc/uptime | awk '{print NF}'
