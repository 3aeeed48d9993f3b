/* Guests that never end by themselves, for test/hostile/run to end. `linger busy_threads`, `linger
 * forking`. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *spin(void *arg)
{
	for (volatile unsigned long i = 0;; i++)
		;
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t;

	puts("ready");
	fflush(stdout);
	if (argc > 1 && strcmp(argv[1], "forking") == 0) {
		for (;;) {
			pid_t pid = fork();

			if (pid == 0)
				_exit(0);
			waitpid(pid, NULL, 0);
		}
	}
	for (int i = 0; i < 3; i++) {
		if (fork() == 0) {
			pthread_create(&t, NULL, spin, NULL);
			spin(NULL);
		}
	}
	spin(NULL);
}
