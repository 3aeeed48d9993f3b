#include "platform/internal.h"
const struct platform_ops *seccomp_ops(void)
{
	return ptrace_ops();
}
