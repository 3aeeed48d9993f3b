# needs: gcc musl-gcc
# One program that makes short calls often, linked in every way, and its copy run again.
cat >calls.c <<'END'
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int main(void)
{
	int pipes[2], good = 0;
	struct timespec ts;
	char c = 7;
	if (pipe(pipes) < 0)
		return 1;
	for (int i = 0; i < 200; i++) {
		good += write(pipes[1], &c, 1) == 1 && read(pipes[0], &c, 1) == 1 && c == 7;
		good += syscall(SYS_getppid) == getppid();
		good += syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts) == 0;
		good += getpgid(0x7fffffff) == -1;
		good += lseek(-1, 0, 0) == -1;
	}
	printf("%d\n", good);
	return 0;
}
END
build() {
	name=$1
	shift
	"$@" -o "$name" calls.c && for _ in 1 2 3; do ./"$name"; done
}
build dynamic gcc -O2
build fixed gcc -O2 -no-pie
build static gcc -O2 -static
build static_pie gcc -O2 -static-pie
build musl musl-gcc -O2
build musl_static musl-gcc -O2 -static
