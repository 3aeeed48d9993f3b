tar cf t.tar tree && tar tf t.tar | sort | head -n 20
gzip -9 -c t.tar >t.tgz && gzip -t t.tgz && echo good
mkdir out && tar xzf t.tgz -C out && diff -r tree out/tree && echo same
stat -c '%a %Y %n' out/tree/a/x/f2.txt
tar --numeric-owner -cJf t.txz tree && tar tJf t.txz | wc -l
