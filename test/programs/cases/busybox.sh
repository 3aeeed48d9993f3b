# needs: busybox
b=busybox
$b sh -c 'for i in 1 2 3; do echo $i; done | $0 wc -l' $b
cd tree
$b ls a/x; $b cat a/x/f1.txt; $b head -n1 a/x/f1.txt; $b tail -n1 a/x/f1.txt; $b wc a/x/*.txt
$b sort -r a/x/f1.txt; $b uniq -c a/x/f1.txt; $b cut -c1-4 a/x/f1.txt; $b tr a-z A-Z <a/x/f1.txt
$b grep -r needle a/x; $b sed s/file/FILE/ a/x/f1.txt; $b awk '{print $2}' a/x/f1.txt
$b find . -type f | $b sort; $b md5sum a/x/f1.txt; $b sha1sum a/x/f1.txt; $b sha256sum a/x/f1.txt
$b cksum a/x/f1.txt; $b od -c a/x/f1.txt; $b hexdump -C a/x/f1.txt; $b basename /x/y.c .c; $b dirname /x/y
$b cp a/x/f1.txt new; $b mv new newer; $b ln newer hard; $b ln -s newer soft; $b readlink soft
$b stat -c '%s %h %F' newer; $b rm newer hard soft; $b mkdir -p p/q/r; $b rmdir p/q/r; $b rm -r p
$b touch t; $b test -f t && echo test; $b chmod 640 t; $b stat -c %a t; $b truncate -s 100 t; $b du -b t; $b rm t
$b expr 3 + 4; $b seq 1 5; $b printf '%05d\n' 42; $b echo -e 'a\tb'; $b yes | $b head -n 2; $b true; $b false; echo $?
$b env A=1 $b sh -c 'echo $A'; $b tac a/x/f1.txt; $b rev a/x/f1.txt; $b nl a/x/f1.txt; $b fold -w 5 a/x/f1.txt
$b paste a/x/f1.txt a/x/f2.txt; $b comm a/x/f1.txt a/x/f2.txt; $b diff a/x/f1.txt a/x/f2.txt; $b cmp a/x/f1.txt a/x/f1.txt
$b tar cf - a | $b tar tf - | $b sort; $b gzip -c a/x/f1.txt | $b gunzip; $b bzip2 -c a/x/f1.txt | $b bunzip2
$b xargs -n1 echo <a/x/f1.txt; $b tee copy <a/x/f1.txt; $b dd if=a/x/f1.txt bs=4 count=2 2>/dev/null; echo
$b split -l 1 a/x/f1.txt part.; $b cat part.aa part.ab; $b uname -s; $b id -u; $b pwd | $b grep -c tree; $b date -u -d @0
$b usleep 10; $b nice $b echo nice; $b nohup $b echo nohup 2>/dev/null; $b timeout 5 $b echo in time; $b expand a/x/f1.txt
$b uuencode -m x <a/x/f1.txt; $b base64 a/x/f1.txt; $b dc -e '2 3 + p' 2>/dev/null; $b factor 60; $b realpath a/../a; $b mktemp -u | $b wc -c
