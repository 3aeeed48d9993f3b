# The stub: freestanding code at a fixed address, wrapped in a bootstrap program that the zygote is exec'd from.
STUB_DIR := $(BUILD)/gen/stub
STUB_CFLAGS := -std=gnu17 -O2 -g $(WARN) -I. -ffreestanding -fpie -fvisibility=hidden -mgeneral-regs-only -mno-red-zone \
	-fno-stack-protector -fcf-protection=none -fno-asynchronous-unwind-tables -fno-builtin -fno-jump-tables \
	-fno-tree-loop-distribute-patterns -U_FORTIFY_SOURCE -MMD -MP
ifneq ($(findstring clang,$(CC)),)
STUB_CFLAGS := $(filter-out -fno-tree-loop-distribute-patterns,$(STUB_CFLAGS))
endif
STUB_SRC := $(wildcard platform/stub/*.c) platform/stub/arch/x86_64/mapper.S platform/stub/arch/x86_64/guest.S
STUB_OBJ := $(patsubst %,$(STUB_DIR)/%.o,$(basename $(STUB_SRC)))

$(STUB_DIR)/%.o: %.c platform/stub/stub.mk
	@mkdir -p $(@D)
	$(CC) $(STUB_CFLAGS) -c -o $@ $<
$(STUB_DIR)/%.o: %.S platform/stub/stub.mk
	@mkdir -p $(@D)
	$(CC) $(STUB_CFLAGS) -I$(BUILD)/gen -c -o $@ $<
$(STUB_DIR)/stub.elf: $(STUB_OBJ) platform/stub/stub.lds
	$(CC) -nostdlib -static -Wl,--build-id=none,-z,noexecstack,-z,norelro,-T,platform/stub/stub.lds -o $@ $(STUB_OBJ)
$(BUILD)/gen/stub.bin: $(STUB_DIR)/stub.elf
	objcopy -O binary $< $@
$(STUB_DIR)/platform/stub/arch/x86_64/boot.o: $(BUILD)/gen/stub.bin
$(BUILD)/gen/zygote.elf: $(STUB_DIR)/platform/stub/arch/x86_64/boot.o platform/stub/boot.lds
	$(CC) -nostdlib -static -Wl,--build-id=none,-z,noexecstack,-z,norelro,-T,platform/stub/boot.lds -o $@ $<
	strip $@
$(BUILD)/platform/arch/x86_64/stub_image.o: $(BUILD)/gen/zygote.elf $(BUILD)/gen/stub.bin
