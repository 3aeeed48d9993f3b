#include "bench/driver/machine.h"
#include "bench/driver/command.h"
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The value after `key :` in a file of such lines; or the first line, for key NULL. "" if none. */
static void read_line(const char *path, const char *key, char *buf, size_t size)
{
	char line[1024];
	FILE *f = fopen(path, "re");

	buf[0] = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		char *text = line;

		line[strcspn(line, "\n")] = '\0';
		if (key) {
			if (strncmp(line, key, strlen(key)) != 0 || !(text = strchr(line, ':')))
				continue;
			text++;
		}
		text += strspn(text, " \t");
		snprintf(buf, size, "%s", text);
		break;
	}
	if (f)
		fclose(f);
}

static void add_file(struct results *r, const char *name, const char *path, const char *missing)
{
	char text[160];

	read_line(path, NULL, text, sizeof(text));
	if (*text || missing)
		results_fact(r, name, "%s", *text ? text : missing);
}

static void add_processor(struct results *r)
{
	char model[120], flags[1024];

	read_line("/proc/cpuinfo", "model name", model, sizeof(model));
	read_line("/proc/cpuinfo", "flags", flags, sizeof(flags));
	results_fact(r, "processor", "%s, %ld online%s", *model ? model : "unknown",
		     sysconf(_SC_NPROCESSORS_ONLN),
		     strstr(flags, " hypervisor") ? ", virtual machine" : "");
}

static void add_version(struct results *r, const char *name, const char *command)
{
	char text[128];

	command_first_line(command, text, sizeof(text));
	if (*text)
		results_fact(r, name, "%s", text);
}

/* A peer's first word is its program. */
static void add_peer_version(struct runtime *rt)
{
	char program[200], command[256];
	size_t n = strcspn(rt->prefix, " ");

	snprintf(program, sizeof(program), "%.*s", (int)n, rt->prefix);
	if (strpbrk(program, "'\"$`\\;&|<>()"))
		return;
	snprintf(command, sizeof(command), "%s --version", program);
	command_first_line(command, rt->version, sizeof(rt->version));
}

void machine_describe(struct results *r, const struct bench_options *o)
{
	char ram[64], command[320], load[64], date[40];
	struct utsname u;
	struct tm tm;

	strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S %z", localtime_r(&r->started, &tm));
	results_fact(r, "date", "%s", date);
	add_processor(r);
	read_line("/proc/meminfo", "MemTotal", ram, sizeof(ram));
	results_fact(r, "memory", "%s", ram);
	uname(&u);
	results_fact(r, "kernel", "%s %s %s", u.sysname, u.release, u.machine);
	add_file(r, "governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
		 "none (the host's or hypervisor's)");
	add_file(r, "clock source",
		 "/sys/devices/system/clocksource/clocksource0/current_clocksource", NULL);
	add_file(r, "THP", "/sys/kernel/mm/transparent_hugepage/enabled", "none");
	add_file(r, "THP for shmem", "/sys/kernel/mm/transparent_hugepage/shmem_enabled", NULL);
	add_file(r, "max_map_count", "/proc/sys/vm/max_map_count", NULL);
	read_line("/proc/loadavg", NULL, load, sizeof(load));
	results_fact(r, "load at start", "%s", load);
	add_version(r, "python3", "/usr/bin/python3 --version");
	add_version(r, "node", "/usr/bin/node --version");
	add_version(r, "bash", "/bin/bash --version");
	add_version(r, "fio", "fio --version");
	for (int i = 0; i < r->runtime_count; i++) {
		struct runtime *rt = &r->runtimes[i];

		if (rt->kind == RUNTIME_PEER)
			add_peer_version(rt);
		if (rt->kind != RUNTIME_SENTRY)
			continue;
		snprintf(command, sizeof(command), "'%s' --version", o->minisentry);
		command_first_line(command, rt->version, sizeof(rt->version));
	}
}
