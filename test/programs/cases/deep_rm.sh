d=deep; for i in $(seq 20); do d=$d/$i; done
mkdir -p $d && rm -rf deep && test ! -e deep && echo gone
mkdir many && (cd many && seq 1 10000 | xargs touch) && ls many | wc -l && rm -rf many && test ! -e many && echo gone
cp -a tree copy && mv copy /tmp/copy.$$ && diff -r tree /tmp/copy.$$ && rm -rf /tmp/copy.$$ && echo moved
