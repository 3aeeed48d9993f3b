/*
 * platform/arch/x86_64/flags.h: does a program read its flags behind a system call?
 *
 * Linux keeps the arithmetic flags over a call, a patched call does not. Hardly
 * any program notices, as compilers and the psABI hold them for lost; code behind
 * a site that may read a flag before it is written is found by decoding it.
 */
#ifndef MINISENTRY_PLATFORM_FLAGS_H
#define MINISENTRY_PLATFORM_FLAGS_H

#include "platform/patch.h"

#include <Zydis/Zydis.h>

/*
 * Follows jumps to both sides within the bytes that the site comes with. What is
 * outside of them, behind a call, a return or an indirect jump counts as reading nothing, and so
 * does what comes after a great many instructions.
 */
bool flags_are_read(const ZydisDecoder *decoder, const struct patch_site *site);

#endif
