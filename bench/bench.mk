# `minisentry bench`: the driver is a program of its own beside minisentry, which it runs; the guest
# workloads are one static program and a few scripts, which any runtime can execute.
BENCH_DIR    := $(BUILD)/bench
BENCH_GUEST  := $(wildcard bench/guest/*.c)
BENCH_FILES  := $(wildcard bench/guest/*.py bench/guest/*.js bench/guest/*.sh) $(wildcard bench/guest/cxxlib/*)
BENCH_COPIES := $(patsubst bench/guest/%,$(BENCH_DIR)/%,$(BENCH_FILES))

all: $(BENCH_DIR)/minisentry-bench-guest $(BENCH_COPIES)

$(BENCH_DIR)/minisentry-bench-guest: $(patsubst %.c,$(BUILD)/%.o,$(BENCH_GUEST))
	@mkdir -p $(@D)
	$(CC) -static -o $@ $^ -lpthread
$(BENCH_COPIES): $(BENCH_DIR)/%: bench/guest/%
	@mkdir -p $(@D)
	@cp -p $< $@
