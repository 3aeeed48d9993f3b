/* platform/arch/x86_64/stub_image.h: the bytes that stub.mk built (stub_image.S). */
#ifndef MINISENTRY_PLATFORM_STUB_IMAGE_H
#define MINISENTRY_PLATFORM_STUB_IMAGE_H

extern const unsigned char stub_image_zygote[], stub_image_zygote_end[];
extern const unsigned char stub_image_blob[]; /* starts with a struct stub_header */

#endif
