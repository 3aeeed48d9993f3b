/* /proc/PID/{maps,smaps,smaps_rollup}. */
#include "sentry/proc/internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NAME_COLUMN 72 /* where Linux pads the line before the name */

/* The mm if f's opener may look at it. */
static int readable_mm(const struct proc_ctx *c, struct file *f, struct mm **ret)
{
	return proc_task_mm(c, f->cred, true, ret);
}

static void put_vma_line(struct textbuf *out, const struct mm_vma_info *v)
{
	size_t start = out->len;

	textbuf_printf(out, "%08lx-%08lx %c%c%c%c %08lx %02x:%02x %lu ", v->start, v->end,
		       v->prot & PROT_READ ? 'r' : '-', v->prot & PROT_WRITE ? 'w' : '-',
		       v->prot & PROT_EXEC ? 'x' : '-', v->shared ? 's' : 'p', v->offset,
		       v->dev_major, v->dev_minor, v->ino);
	if (v->name[0]) {
		while (out->len - start < NAME_COLUMN && !out->failed)
			textbuf_write(out, " ", 1);
		textbuf_write(out, " ", 1);
		proc_put_escaped(out, v->name, "\n");
	}
	textbuf_write(out, "\n", 1);
}

static int for_each_vma(const struct proc_ctx *c, struct file *f, bool usage,
			void (*fn)(const struct mm_vma_info *v, void *arg), void *arg)
{
	struct mm_vma_info *v = malloc(sizeof(*v));
	struct mm *mm;
	u64 at = 0;
	int err = v ? readable_mm(c, f, &mm) : -ENOMEM;

	if (err) {
		free(v);
		return err;
	}
	while (mm && mm_vma_at_or_after(mm, at, usage, v)) {
		fn(v, arg);
		if (v->end <= at)
			break;
		at = v->end;
	}
	mm_put(mm);
	free(v);
	return 0;
}

static void show_map(const struct mm_vma_info *v, void *arg)
{
	put_vma_line(arg, v);
}

int proc_show_maps(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	return for_each_vma(c, f, false, show_map, out);
}

struct usage {
	u64 rss, pss, shared_clean, shared_dirty, private_clean, private_dirty, referenced,
		anonymous, locked;
};

static void put_row(struct textbuf *out, const char *name, u64 bytes)
{
	/* as Linux: the name and colon fill sixteen columns, the number eight */
	int pad = 15 - (int)strlen(name);

	textbuf_printf(out, "%s:%*s%8lu kB\n", name, MAX(pad, 0), "", bytes >> 10);
}

static void put_usage(struct textbuf *out, const struct usage *u)
{
	put_row(out, "Rss", u->rss);
	put_row(out, "Pss", u->pss);
	put_row(out, "Pss_Dirty", MIN(u->pss, u->private_dirty + u->shared_dirty));
	put_row(out, "Shared_Clean", u->shared_clean);
	put_row(out, "Shared_Dirty", u->shared_dirty);
	put_row(out, "Private_Clean", u->private_clean);
	put_row(out, "Private_Dirty", u->private_dirty);
	put_row(out, "Referenced", u->referenced);
	put_row(out, "Anonymous", u->anonymous);
	put_row(out, "KSM", 0);
	put_row(out, "LazyFree", 0);
	put_row(out, "AnonHugePages", 0);
	put_row(out, "ShmemPmdMapped", 0);
	put_row(out, "FilePmdMapped", 0);
	put_row(out, "Shared_Hugetlb", 0);
	put_row(out, "Private_Hugetlb", 0);
	put_row(out, "Swap", 0);
	put_row(out, "SwapPss", 0);
	put_row(out, "Locked", u->locked);
}

static struct usage usage_of(const struct mm_vma_info *v)
{
	return (struct usage){ v->rss,		v->pss,		  v->shared_clean,
			       v->shared_dirty, v->private_clean, v->private_dirty,
			       v->referenced,	v->anonymous,	  v->locked ? v->pss : 0 };
}

static void show_smap(const struct mm_vma_info *v, void *arg)
{
	struct textbuf *out = arg;
	struct usage u = usage_of(v);

	put_vma_line(out, v);
	put_row(out, "Size", v->end - v->start);
	put_row(out, "KernelPageSize", PAGE_SIZE);
	put_row(out, "MMUPageSize", PAGE_SIZE);
	put_usage(out, &u);
	textbuf_printf(out, "THPeligible:           0\nVmFlags:%s \n", v->vm_flags);
}

int proc_show_smaps(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	return for_each_vma(c, f, true, show_smap, out);
}

struct rollup {
	u64 start, end;
	struct usage sum;
};

static void add_up(const struct mm_vma_info *v, void *arg)
{
	struct rollup *r = arg;
	struct usage u = usage_of(v);

	if (!r->end)
		r->start = v->start;
	r->end = v->end;
	r->sum.rss += u.rss;
	r->sum.pss += u.pss;
	r->sum.shared_clean += u.shared_clean;
	r->sum.shared_dirty += u.shared_dirty;
	r->sum.private_clean += u.private_clean;
	r->sum.private_dirty += u.private_dirty;
	r->sum.referenced += u.referenced;
	r->sum.anonymous += u.anonymous;
	r->sum.locked += u.locked;
}

int proc_show_smaps_rollup(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct rollup r = { 0 };
	struct mm_vma_info *line;
	int err = for_each_vma(c, f, true, add_up, &r);

	if (err)
		return err;
	if (!r.end)
		return -ESRCH;
	line = calloc(1, sizeof(*line));
	if (!line)
		return -ENOMEM;
	line->start = r.start;
	line->end = r.end;
	strcpy(line->name, "[rollup]");
	put_vma_line(out, line);
	put_usage(out, &r.sum);
	free(line);
	return 0;
}
