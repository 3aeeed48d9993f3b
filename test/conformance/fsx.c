/*
 * Random data operations on one file, against a model: reads, writes, mapped
 * loads and stores, truncate, fallocate, punch, copies, from one process and from
 * four that take turns, and from four at once on pages of their own.
 */
#include "conf.h"
#include <linux/falloc.h>

#define PG 4096UL
#define MAX_SIZE (8UL << 20)

struct model {
	unsigned char data[MAX_SIZE];
	size_t size;
};

static unsigned long long state;
static size_t max_size = 64 * PG; /* of the file; what is long enough for huge pages costs time */

static unsigned rnd(unsigned n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(state >> 33) % n;
}
static void fill(unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)rnd(256);
}
static void grow(struct model *m, size_t size)
{
	if (size > m->size) {
		memset(m->data + m->size, 0, size - m->size);
		m->size = size;
	}
}
static void verify(int fd, struct model *m, size_t off, size_t len)
{
	static unsigned char buf[MAX_SIZE];
	size_t want = off < m->size ? (len < m->size - off ? len : m->size - off) : 0;

	CHECK_EQ(pread(fd, buf, len, off), want);
	for (size_t i = 0; i < want; i++)
		if (buf[i] != m->data[off + i])
			conf_fail(__FILE__, __LINE__, "byte %zu is %d, not %d", off + i, buf[i],
				  m->data[off + i]);
}
static void mapped(int fd, struct model *m, unsigned char *map, size_t off, size_t len, bool store)
{
	if (off >= m->size)
		return;
	if (len > m->size - off)
		len = m->size - off;
	if (store) {
		fill(m->data + off, len);
		memcpy(map + off, m->data + off, len);
	} else {
		CHECK_MEM(map + off, m->data + off, len);
	}
}
static size_t run_next;

static void step(int fd, struct model *m, unsigned char *map)
{
	static unsigned char buf[MAX_SIZE];
	size_t off = rnd(max_size), len = 1 + rnd(rnd(3) ? 3000 : max_size / 6), to;

	/* A run of writes now and then, one behind the other. */
	if (rnd(4) == 0)
		off = run_next < max_size ? run_next : 0;
	if (len > max_size - off)
		len = max_size - off;
	switch (rnd(11)) {
	case 0:
	case 1:
		fill(buf, len);
		CHECK_EQ(pwrite(fd, buf, len, off), len);
		grow(m, off);
		grow(m, off + len);
		memcpy(m->data + off, buf, len);
		run_next = off + len;
		break;
	case 2:
	case 3: mapped(fd, m, map, off, len, true); break;
	case 4: mapped(fd, m, map, off, len, false); break;
	case 5:
		OK(ftruncate(fd, off));
		grow(m, off);
		m->size = off;
		break;
	case 6:
		OK(fallocate(fd, 0, off, len));
		grow(m, off + len);
		break;
	case 7:
		OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len));
		if (off < m->size)
			memset(m->data + off, 0, len < m->size - off ? len : m->size - off);
		break;
	case 8:
		to = rnd(max_size);
		if (off + len > m->size || to + len > max_size ||
		    (to < off + len && off < to + len))
			break;
		{
			loff_t in = off, out = to;
			CHECK_EQ(copy_file_range(fd, &in, fd, &out, len, 0), len);
		}
		grow(m, to + len);
		memcpy(m->data + to, m->data + off, len);
		break;
	default: verify(fd, m, off, len);
	}
}
static int data_file(const char *dir)
{
	char name[200];
	int fd;

	snprintf(name, sizeof(name), "%s/fsx.XXXXXX", dir);
	fd = OK(mkstemp(name));
	OK(unlink(name));
	return fd;
}
static unsigned char *map_file(int fd)
{
	return OK(mmap(NULL, max_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
}

static void one_process(const char *dir, unsigned steps)
{
	struct model *m = calloc(1, sizeof(*m));
	int fd = data_file(dir);
	unsigned char *map = map_file(fd);
	struct stat st;

	state = 42;
	for (unsigned i = 0; i < steps; i++) {
		step(fd, m, map);
		if (i % 100 == 0) {
			verify(fd, m, 0, max_size);
			OK(fstat(fd, &st));
			CHECK_EQ(st.st_size, m->size);
		}
	}
	verify(fd, m, 0, max_size);
}
CASE(tmpfs_against_model)
{
	one_process("/dev/shm", 20000);
}
CASE(tmpfs_long_against_model)
{
	max_size = MAX_SIZE;
	one_process("/dev/shm", 400);
}
CASE(tmp_against_model)
{
	one_process(conf_tmpdir(), 20000);
}

/* Four processes with mappings of their own; the model is in shared memory, a token goes round. */
CASE(four_processes_take_turns)
{
	struct model *m =
		mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ring[4][2], fd = data_file("/dev/shm"), status;
	pid_t pids[4];
	char c = 0;

	for (int i = 0; i < 4; i++)
		OK(pipe(ring[i]));
	for (int i = 0; i < 4; i++) {
		pids[i] = OK(fork());
		if (pids[i])
			continue;
		unsigned char *map = map_file(fd);

		state = 1000 + i;
		for (int turn = 0; turn < 300; turn++) {
			CHECK_EQ(read(ring[i][0], &c, 1), 1);
			for (int n = 0; n < 8; n++)
				step(fd, m, map);
			CHECK_EQ(write(ring[(i + 1) % 4][1], &c, 1), 1);
		}
		_exit(0);
	}
	CHECK_EQ(write(ring[0][1], &c, 1), 1);
	for (int i = 0; i < 4; i++) {
		OK(waitpid(pids[i], &status, 0));
		CHECK_EQ(status, 0);
	}
	verify(fd, m, 0, max_size);
}

/* At once, each on its own quarter: what the others do must never show. */
CASE(four_processes_at_once)
{
	int fd = data_file("/dev/shm");
	pid_t pids[4];

	OK(ftruncate(fd, max_size));
	for (int p = 0; p < 4; p++) {
		pids[p] = OK(fork());
		if (pids[p])
			continue;
		unsigned char *map = map_file(fd), *mine = calloc(1, max_size / 4), buf[5000];
		size_t base = p * (max_size / 4);

		state = 77 + p;
		for (int i = 0; i < 4000; i++) {
			size_t off = rnd(max_size / 4), len = 1 + rnd(sizeof(buf));

			if (len > max_size / 4 - off)
				len = max_size / 4 - off;
			switch (rnd(5)) {
			case 0:
				fill(mine + off, len);
				CHECK_EQ(pwrite(fd, mine + off, len, base + off), len);
				break;
			case 1:
				fill(mine + off, len);
				memcpy(map + base + off, mine + off, len);
				break;
			case 2:
				memset(mine + off, 0, len);
				OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					     base + off, len));
				break;
			case 3: CHECK_MEM(map + base + off, mine + off, len); break;
			default:
				CHECK_EQ(pread(fd, buf, len, base + off), len);
				CHECK_MEM(buf, mine + off, len);
			}
		}
		_exit(0);
	}
	for (int p = 0; p < 4; p++)
		conf_join(pids[p]);
}
CONF_MAIN
