# Unit tests: test/unit/NAME_test.c links with the module libraries; `make unit-NAME` runs one.
UNIT := $(patsubst test/unit/%_test.c,%,$(wildcard test/unit/*_test.c))
ifneq ($(HAVE_BENCH),yes)
UNIT := $(filter-out bench,$(UNIT))
endif
# A unit test links only the libraries it names in its first line: `/* unit: base pgalloc */`
# Functions that the test stands in front of, as __wrap_NAME, are in its second line: `/* wrap: host_mmap */`
unit_wraps = $(addprefix -Wl$(comma)--wrap=,$(shell sed -n '2s|^/\* wrap: \(.*\) \*/|\1|p' test/unit/$(1)_test.c))
comma := ,
unit_libs = $(foreach m,$(shell sed -n '1s|^/\* unit: \(.*\) \*/|\1|p' test/unit/$(1)_test.c),$(BUILD)/lib$(m).a)
define unit_rule
$(BUILD)/test/unit/$(1): $(BUILD)/test/unit/$(1)_test.o $(call unit_libs,$(1))
	$(CC) $(VARIANT) -o $$@ $$< $(call unit_wraps,$(1)) -Wl,--start-group $(call unit_libs,$(1)) -Wl,--end-group -lcmocka $(LDLIBS) -lm
unit-$(1): $(BUILD)/test/unit/$(1)
	$$<
endef
$(foreach u,$(UNIT),$(eval $(call unit_rule,$(u))))
.PHONY: $(addprefix unit-,$(UNIT))

# What the guests of one folder share is compiled once.
GUEST_CC = $(CC) -std=gnu17 -O1 -g $(WARN) -I.
$(BUILD)/guest/%.o: test/%.c
	@mkdir -p $(@D)
	$(GUEST_CC) -MMD -MP -c -o $@ $<

# Conformance: test/conformance/FAMILY.c, plain programs; the same binary runs natively and inside.
CONF := $(patsubst test/conformance/%.c,%,$(wildcard test/conformance/*.c))
# Bad pointers and counts are what the cases are about.
CONF_WARN := -Wno-unknown-warning-option -Wno-unused-but-set-variable -Wno-stringop-overread -Wno-stringop-overflow -Wno-nonnull -Wno-array-bounds
CONF_BINS := $(addprefix $(BUILD)/test/conformance/,$(CONF))
CONF_LIB := $(BUILD)/guest/conformance/lib/conf.o
$(BUILD)/test/conformance/%: test/conformance/%.c test/conformance/conf.h $(CONF_LIB)
	@mkdir -p $(@D)
	$(GUEST_CC) $(CONF_WARN) -Itest/conformance -o $@ $< $(CONF_LIB) $(CONF_LINK) -lpthread -lrt -lutil
$(BUILD)/test/conformance/patch $(BUILD)/test/conformance/text: CONF_LINK = -static-pie
$(BUILD)/test/conformance/patch_low $(BUILD)/test/conformance/text_low: CONF_LINK = -static -no-pie -Wl,--eh-frame-hdr
$(BUILD)/test/conformance/patch_low: test/conformance/patch.c
$(BUILD)/test/conformance/text_low: test/conformance/text.c
conformance-programs: $(CONF_BINS)
test-programs: conformance-programs hostile-programs random-programs $(addprefix $(BUILD)/test/unit/,$(UNIT))
.PHONY: conformance-programs test-programs

# Hostile guests: test/hostile/NAME.c, named attacks; keeper watches minisentry from outside.
HOSTILE := $(patsubst test/hostile/%.c,%,$(wildcard test/hostile/*.c))
HOSTILE_BINS := $(addprefix $(BUILD)/test/hostile/,$(HOSTILE) keeper)
HOSTILE_LIB := $(BUILD)/guest/hostile/lib/hostile.o
$(BUILD)/test/hostile/keeper: test/hostile/host/keeper.c
	@mkdir -p $(@D)
	$(GUEST_CC) -o $@ $<
$(BUILD)/test/hostile/%: test/hostile/%.c test/hostile/lib/hostile.h $(HOSTILE_LIB)
	@mkdir -p $(@D)
	$(GUEST_CC) $(CONF_WARN) -o $@ $< $(if $(filter linger,$*),,$(HOSTILE_LIB)) -lpthread -lrt
hostile-programs: $(HOSTILE_BINS)
.PHONY: hostile-programs

# Every conformance family, program test and hostile guest under `minisentry audit`; takes a while, needs root.
audit-all: all conformance-programs hostile-programs
	test/audit_all $(BUILD)
.PHONY: audit-all

# The attacks at length, with seeds of this minute; SECONDS for each round of the fuzz guest.
FUZZ_SECONDS ?= 120
fuzz-hostile: $(BUILD)/minisentry hostile-programs
	for p in seccomp ptrace; do HOSTILE_FULL=1 LIMIT=600 SEED=$$(date +%s) FUZZ_SECONDS=$(FUZZ_SECONDS) SENTRY=$(BUILD)/minisentry \
		PLATFORM=$$p BUILD=$(BUILD) test/hostile/run || exit 1; done
.PHONY: fuzz-hostile

# Guests that do random things, from a fresh folder (they leave socket nodes in it).
FUZZ := $(patsubst test/fuzz/%.c,$(BUILD)/test/fuzz/%,$(wildcard test/fuzz/*.c))
$(BUILD)/test/fuzz/%: test/fuzz/%.c
	@mkdir -p $(@D)
	$(GUEST_CC) $(CONF_WARN) -o $@ $< -lpthread
fuzz: fuzz-hostile $(FUZZ)
	for p in seccomp ptrace; do for f in $(FUZZ); do \
		$(BUILD)/minisentry run --platform=$$p --ro $(abspath $(BUILD)):/fuzz --chdir /tmp -- \
			/fuzz/test/fuzz/$$(basename $$f) $$(date +%s) 20000 || exit 1; done; done
.PHONY: fuzz

# Threads that make patched calls while others signal, fork, execute and kill, for STRESS_SECONDS.
STRESS_SECONDS ?= 600
stress: $(BUILD)/minisentry $(BUILD)/test/conformance/stress
	cd $(BUILD) && ./minisentry run --platform=seccomp --env MINISENTRY_CONF=1 --env STRESS_SECONDS=$(STRESS_SECONDS) \
		--env CONF_TIMEOUT=$$(($(STRESS_SECONDS) + 60)) -- test/conformance/stress calls_under_fire
.PHONY: stress

# Random operations against a model, RANDOM_OPS of them on each platform; make check does some thousands.
RANDOM_TESTS := $(patsubst test/random/%.c,%,$(wildcard test/random/*.c))
RANDOM_BINS := $(addprefix $(BUILD)/test/random/,$(RANDOM_TESTS))
RANDOM_LIB := $(BUILD)/guest/random/lib/random.o
$(BUILD)/test/random/%: test/random/%.c test/random/lib/random.h $(RANDOM_LIB)
	@mkdir -p $(@D)
	$(GUEST_CC) -o $@ $< $(wildcard test/random/$*/*.c) $(RANDOM_LIB) -lpthread
$(BUILD)/test/random/memory: $(wildcard test/random/memory/*)
random-programs: $(RANDOM_BINS)
RANDOM_OPS ?= 1000000
RANDOM_SEED ?= $(shell date +%s)
random: $(BUILD)/minisentry random-programs
	cd $(BUILD) && for p in seccomp ptrace; do for t in $(RANDOM_TESTS); do \
		./minisentry run --platform=$$p --env MINISENTRY_CONF=1 -- \
			test/random/$$t --seed $(RANDOM_SEED) --ops $(RANDOM_OPS) || exit 1; done; done
.PHONY: random random-programs
