# `minisentry audit`: its BPF programs and their skeleton, when clang, bpftool, libbpf and the kernel's types are here.
BPF_CLANG ?= clang
BPFTOOL   ?= $(shell PATH="$$PATH:/usr/sbin:/sbin" command -v bpftool)
BTF       ?= /sys/kernel/btf/vmlinux
AUDIT     ?= auto
# What is missing, by name; nothing when the audit can be built. AUDIT=no leaves it out.
AUDIT_MISSING := $(if $(filter no,$(AUDIT)),AUDIT=no,$(strip \
	$(if $(shell command -v $(BPF_CLANG)),,clang) $(if $(BPFTOOL),,bpftool) $(if $(wildcard $(BTF)),,$(BTF)) \
	$(if $(shell printf '\043include <bpf/libbpf.h>\n\043include <libelf.h>\n' | $(CC) -E - >/dev/null 2>&1 && echo y),,libbpf-dev)))

ifeq ($(AUDIT_MISSING),)
AUDIT_OBJS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out %.bpf.c,$(wildcard cli/audit/*.c)))
# Static where that works: three libraries less to load for each run, which needs none of them.
AUDIT_STATIC := -Wl,-Bstatic -lbpf -lelf -lz -Wl,-Bdynamic
LDLIBS += $(if $(call links,bpf_object__load,$(AUDIT_STATIC)),$(AUDIT_STATIC),-lbpf -lelf -lz)
$(AUDIT_OBJS) $(BUILD)/cli/audit.o $(BUILD)/cli/doctor.o: ALLFLAGS += -DMINISENTRY_HAVE_AUDIT
$(AUDIT_OBJS): $(BUILD)/gen/audit.skel.h

$(BUILD)/gen/vmlinux.h: $(BTF)
	@mkdir -p $(@D)
	$(BPFTOOL) btf dump file $< format c >$@.new && mv $@.new $@
$(BUILD)/gen/audit.bpf.o: cli/audit/audit.bpf.c cli/audit/abi.h $(BUILD)/gen/vmlinux.h
	$(BPF_CLANG) -O2 -g -target bpf -D__TARGET_ARCH_x86 -I$(BUILD)/gen -I. -Wall -Wextra -Werror \
		-Wno-unused-parameter -Wno-missing-declarations -c -o $@ $<
$(BUILD)/gen/audit.skel.h: $(BUILD)/gen/audit.bpf.o
	{ echo '/* NOLINTBEGIN */' && $(BPFTOOL) gen skeleton $< name audit_bpf && echo '/* NOLINTEND */'; } >$@.new && mv $@.new $@
else
AUDIT_SKIP := cli/audit/%
$(info minisentry audit is left out of this build: $(AUDIT_MISSING))
endif
