/* Programs that are not as they should be. */
#include "test/hostile/lib/hostile.h"
#include <elf.h>

static uint8_t *image;
static size_t image_size;

static void load(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY);

	if (fd < 0 || fstat(fd, &st) < 0)
		skip("%s: %s", path, strerror(errno));
	image_size = (size_t)st.st_size;
	image = malloc(image_size);
	if (read(fd, image, image_size) != (ssize_t)image_size)
		skip("read %s", path);
	close(fd);
}

static void put(const char *path, const void *data, size_t size)
{
	int fd;

	unlink(path);
	fd = open(path, O_CREAT | O_WRONLY, 0755);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		skip("%s: %s", path, strerror(errno));
	close(fd);
}

static void exec_it(void *path)
{
	int null = open("/dev/null", O_RDWR);

	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	execl(path, path, NULL);
	_exit(126);
}

static void try(const void *data, size_t size)
{
	put("/tmp/image", data, size);
	in_child(exec_it, "/tmp/image", 3000, NULL);
}

ATTACK(truncated)
{
	load("/bin/true");
	for (size_t n = 0; n < 1200; n += n < 128 ? 3 : 37)
		try(image, n);
	for (size_t n = 4096; n < image_size; n += image_size / 20)
		try(image, n);
}

/* Every header field gets odd values. */
static uint64_t odd(void)
{
	static const uint64_t values[] = { 0,
					   1,
					   0xff,
					   0xffff,
					   4096,
					   0x7fffffff,
					   0xffffffff,
					   0x7fffffffffff,
					   STUB_AREA,
					   STUB_AREA - 4096,
					   0x7fffffffffffffff,
					   ~0UL,
					   ~0UL - 4095,
					   1UL << 63,
					   0x10000,
					   1UL << 40,
					   1UL << 46 };

	return rnd() % 3 ? values[rnd() % (sizeof(values) / 8)] : rnd() >> rnd() % 64;
}

ATTACK(headers_spoiled)
{
	uint64_t end = now_ms() + (full() ? 20000 : 1500);
	uint8_t *copy;

	load("/bin/true");
	copy = malloc(image_size);
	while (now_ms() < end) {
		Elf64_Ehdr *h = (Elf64_Ehdr *)copy;
		Elf64_Phdr *ph;
		int n = 1 + (int)(rnd() % 3);

		memcpy(copy, image, image_size);
		ph = (Elf64_Phdr *)(copy + h->e_phoff);
		for (int i = 0; i < n; i++) {
			Elf64_Phdr *p = &ph[rnd() % h->e_phnum];
			uint64_t v = odd();

			switch (rnd() % 10) {
			case 0: p->p_offset = v; break;
			case 1: p->p_vaddr = v; break;
			case 2: p->p_filesz = v; break;
			case 3: p->p_memsz = v; break;
			case 4: p->p_align = v; break;
			case 5: p->p_flags = (uint32_t)v; break;
			case 6: p->p_type = v % 2 ? (uint32_t)v % 8 : PT_LOAD; break;
			case 7: h->e_entry = v; break;
			case 8: h->e_type = (uint16_t)(v % 5); break;
			default: copy[rnd() % 1024] = (uint8_t)rnd();
			}
		}
		try(copy, image_size);
	}
}

struct tiny {
	Elf64_Ehdr h;
	Elf64_Phdr p[16];
	char interp[64];
};

static void tiny_make(struct tiny *t, int loads)
{
	memset(t, 0, sizeof(*t));
	memcpy(t->h.e_ident, "\177ELF\2\1\1", 7);
	t->h.e_type = ET_DYN;
	t->h.e_machine = EM_X86_64;
	t->h.e_version = 1;
	t->h.e_phoff = sizeof(t->h);
	t->h.e_ehsize = sizeof(t->h);
	t->h.e_phentsize = sizeof(t->p[0]);
	t->h.e_phnum = (uint16_t)loads;
	for (int i = 0; i < loads; i++)
		t->p[i] = (Elf64_Phdr){ .p_type = PT_LOAD,
					.p_flags = 7,
					.p_filesz = sizeof(*t),
					.p_memsz = sizeof(*t),
					.p_align = 4096,
					.p_vaddr = (uint64_t)i * 0x10000 };
}

ATTACK(interpreter_is_itself)
{
	struct tiny t;

	tiny_make(&t, 2);
	strcpy(t.interp, "/tmp/image");
	t.p[0] = (Elf64_Phdr){ .p_type = PT_INTERP,
			       .p_offset = offsetof(struct tiny, interp),
			       .p_filesz = 11 };
	try(&t, sizeof(t));
	/* Two that name each other. */
	strcpy(t.interp, "/tmp/other");
	try(&t, sizeof(t));
	strcpy(t.interp, "/tmp/image");
	put("/tmp/other", &t, sizeof(t));
	in_child(exec_it, "/tmp/image", 3000, NULL);
	/* Devices, pipes, folders. */
	mkfifo("/tmp/fifo", 0755);
	for (int i = 0; i < 6; i++) {
		static const char *const names[] = { "/dev/zero",      "/tmp/fifo", "/tmp",
						     "/proc/self/mem", "/dev/full", "" };

		strcpy(t.interp, names[i]);
		t.p[0].p_filesz = strlen(names[i]) + 1;
		try(&t, sizeof(t));
	}
	t.p[0].p_filesz = 1UL << 40;
	try(&t, sizeof(t));
}

ATTACK(segments_overlap_or_are_huge)
{
	struct tiny t;

	tiny_make(&t, 8);
	for (int i = 0; i < 8; i++)
		t.p[i].p_vaddr = 0;
	try(&t, sizeof(t));
	for (int i = 0; i < 8; i++)
		t.p[i].p_vaddr = 0x80000 - (uint64_t)i * 0x1000;
	try(&t, sizeof(t));
	tiny_make(&t, 1);
	for (int bits = 20; bits < 64; bits++) {
		t.p[0].p_memsz = 1UL << bits;
		try(&t, sizeof(t));
		t.p[0].p_align = 1UL << bits;
		try(&t, sizeof(t));
		t.p[0].p_align = 4096;
		t.p[0].p_filesz = t.p[0].p_memsz;
		try(&t, sizeof(t));
		t.p[0].p_filesz = sizeof(t);
	}
	tiny_make(&t, 1);
	t.h.e_type = ET_EXEC;
	for (int i = 0; i < 3; i++) {
		static const uint64_t at[] = { 0, STUB_AREA - 4096, STUB_SLOTS };

		t.p[0].p_vaddr = at[i];
		t.p[0].p_memsz = 0x10000;
		try(&t, sizeof(t));
	}
}

ATTACK(phnum_bomb)
{
	size_t size = 65535 * sizeof(Elf64_Phdr) + sizeof(Elf64_Ehdr);
	struct tiny *t = calloc(1, size);

	tiny_make(t, 1);
	for (int i = 0; i < 65535; i++)
		((Elf64_Phdr *)(t + 0)->p)[i] = (Elf64_Phdr){ .p_type = PT_LOAD,
							      .p_flags = 4,
							      .p_filesz = 4096,
							      .p_memsz = 4096,
							      .p_align = 4096,
							      .p_vaddr = (uint64_t)i * 8192 };
	t->h.e_phnum = 1170;
	try(t, size);
	t->h.e_phnum = 65535;
	try(t, size);
}

ATTACK(scripts)
{
	char text[8192];

	try("#!/tmp/image\n", 13); /* itself */
	put("/tmp/a", "#!/tmp/image\n", 13);
	try("#!/tmp/a\n", 9); /* in a circle */
	try("#!", 2);
	try("#!\n", 3);
	try("#!    \n", 7);
	try("#!\0", 3);
	memset(text, ' ', sizeof(text));
	memcpy(text, "#!", 2);
	try(text, sizeof(text));
	memset(text + 2, 'a', sizeof(text) - 2);
	try(text, sizeof(text));
	memset(text + 2, '/', sizeof(text) - 2);
	try(text, sizeof(text));
	for (int i = 0; i < 8; i++) { /* a chain */
		char name[32];
		int n = snprintf(text, sizeof(text), "#!/tmp/chain%d\n", i + 1);

		snprintf(name, sizeof(name), "/tmp/chain%d", i);
		put(name, text, (size_t)n);
	}
	in_child(exec_it, "/tmp/chain0", 3000, NULL);
}

static void huge_args(void *arg)
{
	size_t count = 1 << 20, len = 200000;
	char **argv = calloc(count + 1, sizeof(*argv)), *text = malloc(len + 1);

	memset(text, 'x', len);
	text[len] = 0;
	for (size_t i = 0; i < count; i++)
		argv[i] = text + len - 100;
	execve("/bin/true", argv, argv);
	argv[0] = text;
	argv[1] = NULL;
	execve("/bin/true", argv, argv);
	/* No end: the array runs into unmapped memory. */
	argv = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap((char *)argv + 4096, 4096);
	for (int i = 0; i < 512; i++)
		argv[i] = text + len - 8;
	execve("/bin/true", argv, NULL);
	execve("/bin/true", (void *)~0UL, NULL);
	execve((void *)(STUB_AREA - 8), NULL, NULL);
	execve("/bin/true", NULL, (void *)STUB_SLOTS);
	execve("/bin/true", NULL, NULL);
}

ATTACK(arguments)
{
	in_child(huge_args, NULL, 20000, NULL);
}

HOSTILE_MAIN
