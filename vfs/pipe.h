/*
 * vfs/pipe.h: pipes and FIFOs.
 *
 * A pipe is a ring of bytes of 64 KiB capacity (F_SETPIPE_SZ up to 1 MiB for
 * ordinary users), with readers and writers counted. Writes of at most
 * PIPE_BUF bytes are atomic; EPOLLOUT means that PIPE_BUF bytes fit. O_DIRECT
 * makes packet pipes. The caller raises SIGPIPE on -EPIPE, and checks who may go beyond
 * PIPE_MAX_SIZE.
 */
#ifndef MINISENTRY_VFS_PIPE_H
#define MINISENTRY_VFS_PIPE_H

#include "vfs/file.h"

struct pipe;
#define PIPE_DEFAULT_SIZE 65536
#define PIPE_MAX_SIZE (1U << 20)

/* pipe2(2): flags O_CLOEXEC is the caller's; O_NONBLOCK, O_DIRECT kept. Two new files. */
int pipe_create(u32 flags, const struct cred *cred, struct file **ret_read,
		struct file **ret_write);
/* open(2) of a FIFO inode: sets file->ops. -ENXIO for O_WRONLY|O_NONBLOCK without readers. Returns
 * -EAGAIN when the open must wait for the other side (already counted as reader/writer): the caller
 * waits on file_waitq until fifo_open_ready. */
int fifo_open(struct inode *inode, struct file *file);
bool fifo_open_ready(struct file *file);
bool file_is_pipe(struct file *f);
/* Moves (splice, tee) between pipes without going through guest memory. -EAGAIN. */
ssize_t pipe_splice_pipe(struct file *in, struct file *out, size_t len, bool tee);
/* Reads up to len bytes of the pipe into a kiov without blocking; pipe_size in use for FIONREAD. */
size_t pipe_bytes(struct file *f);
size_t pipe_room(struct file *f);
bool pipe_same(struct file *a, struct file *b); /* two ends of one pipe */
/* For splice to other kinds of file: copies what is queued without taking it (a packet at a time),
 * then takes what could be delivered. pipe_consume does nothing if another reader was faster. */
ssize_t pipe_peek(struct file *f, void *dst, size_t len, u64 *ret_pos);
void pipe_consume(struct file *f, u64 pos, size_t len);
void fifo_inode_free(struct inode *inode);

#endif
