# needs: gcc
gcc -O2 -Wall hello.c && ./a.out
echo "code $?"
gcc -static -o s hello.c && ./s; echo $?
gcc -pthread -o th -xc - <<'C' && ./th
#include <pthread.h>
#include <stdio.h>
static void *f(void *p) { return p; }
int main(void) { pthread_t t[32]; for (long i = 0; i < 32; i++) pthread_create(&t[i], 0, f, (void *)i); long s = 0; for (int i = 0; i < 32; i++) { void *r; pthread_join(t[i], &r); s += (long)r; } printf("%ld\n", s); return 0; }
C
