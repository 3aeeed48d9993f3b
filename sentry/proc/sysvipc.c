/* /proc/sysvipc: the segments of System V shared memory, in the format of Linux's ipc/shm.c. */
#include "sentry/ipc/shm.h"
#include "sentry/proc/internal.h"

static int show_shm(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct shm_table *table = atomic_load(&c->kernel->shm);
	struct shmid_ds ds;
	u64 resident;

	textbuf_printf(out,
		       "       key      shmid perms                  size  cpid  lpid nattch   uid"
		       "   gid  cuid  cgid      atime      dtime      ctime"
		       "                   rss                  swap\n");
	for (int i = 0; table && i < SHM_SEGMENTS_MAX; i++) {
		int id = shm_at(table, i, &ds, &resident);

		if (id < 0)
			continue;
		textbuf_printf(out,
			       "%10d %10d  %4o %21lu %5u %5u  %5lu %5u %5u %5u %5u %10lu %10lu "
			       "%10lu %21lu %21lu\n",
			       ds.shm_perm.__key, id, ds.shm_perm.mode, ds.shm_segsz,
			       (u32)ds.shm_cpid, (u32)ds.shm_lpid, ds.shm_nattch, ds.shm_perm.uid,
			       ds.shm_perm.gid, ds.shm_perm.cuid, ds.shm_perm.cgid,
			       (u64)ds.shm_atime, (u64)ds.shm_dtime, (u64)ds.shm_ctime, resident,
			       0UL);
	}
	return 0;
}

const struct proc_entry proc_sysvipc_entries[] = {
	PROC_FILE("shm", 0444, show_shm),
	{ 0 },
};
