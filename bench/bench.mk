# `minisentry bench`: the driver is a program of its own beside minisentry, which it runs; the guest
# workloads are one static program and a few scripts, which any runtime can execute.
BENCH_DIR    := $(BUILD)/bench
BENCH_GUEST  := $(wildcard bench/guest/*.c)
BENCH_DRIVER := $(wildcard bench/driver/*.c)
BENCH_FILES  := $(wildcard bench/guest/*.py bench/guest/*.js bench/guest/*.sh bench/guest/cxxlib/*)
BENCH_COPIES := $(patsubst bench/guest/%,$(BENCH_DIR)/%,$(BENCH_FILES))

HAVE_BENCH := $(shell pkg-config --exists jansson && echo yes)
ifeq ($(HAVE_BENCH),yes)
all: $(BENCH_DIR)/minisentry-bench $(BENCH_DIR)/minisentry-bench-guest $(BENCH_COPIES)
else
$(info bench: libjansson-dev is missing; `minisentry bench` is left out (try: ./setup))
endif

$(BENCH_DIR)/minisentry-bench: $(patsubst %.c,$(BUILD)/%.o,$(BENCH_DRIVER))
	@mkdir -p $(@D)
	$(CC) $(VARIANT) -o $@ $^ -ljansson -lm
# For the unit test of the driver's arithmetic.
$(BUILD)/libbench.a: $(patsubst %.c,$(BUILD)/%.o,$(filter-out %/main.c,$(BENCH_DRIVER)))
	@rm -f $@
	@ar rcs $@ $^
# Never with a sanitizer, which a static program cannot have: it is the guest, not what is tested.
$(BENCH_DIR)/minisentry-bench-guest: $(patsubst %.c,$(BENCH_DIR)/obj/%.o,$(BENCH_GUEST))
	@mkdir -p $(@D)
	$(CC) -static -o $@ $^ -lpthread
$(BENCH_DIR)/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	@$(CC) -std=gnu17 -D_GNU_SOURCE -O2 $(WARN) -I. -MMD -MP -g -c -o $@ $<
$(BENCH_COPIES): $(BENCH_DIR)/%: bench/guest/%
	@mkdir -p $(@D)
	@cp -p $< $@

ifeq ($(HAVE_BENCH),yes)
install-bench: all
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/libexec/minisentry $(BENCH_DIR)/minisentry-bench $(BENCH_DIR)/minisentry-bench-guest
	for f in $(patsubst bench/guest/%,%,$(BENCH_FILES)); do \
		install -D -m 644 bench/guest/$$f $(DESTDIR)$(PREFIX)/libexec/minisentry/$$f || exit 1; done
else
install-bench:
endif
.PHONY: install-bench
