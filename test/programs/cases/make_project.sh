# needs: gcc make
cd project
for i in $(seq 200); do echo "int f$i(void) { return $i; }" >f$i.c; done
{ for i in $(seq 200); do echo "int f$i(void);"; done; echo '#include <stdio.h>'; echo 'int main(void) { int s = 0;'; for i in $(seq 200); do echo "s += f$i();"; done; echo 'printf("%d\n", s); return 0; }'; } >main.c
printf 'O := $(patsubst %%.c,%%.o,$(wildcard *.c))\nprog: $(O)\n\t@gcc -o $@ $(O)\n%%.o: %%.c\n\t@gcc -O0 -c -o $@ $<\n' >Makefile
make -s -j4 && ./prog
touch f7.c && make -j4 | wc -l
make -q; echo "up to date $?"
