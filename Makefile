# minisentry: `make run` opens a sandboxed shell, `make check` runs every test.
BUILD   ?= build
PREFIX  ?= /usr/local
CC      ?= gcc
VARIANT ?=
OPT     ?= -O2
CFLAGS  ?= -g
MODULES := base pgalloc platform vfs tmpfs mm sentry cli

WARN    := -Wall -Wextra -Werror -Wno-unused-parameter
ALLFLAGS = -std=gnu17 -D_GNU_SOURCE $(OPT) $(WARN) -fno-strict-aliasing -I. -I$(BUILD)/gen -MMD -MP $(CFLAGS) $(VARIANT)
LDLIBS  := -lseccomp -lcap -lpthread

# The stub is freestanding code with its own rules (platform/stub/stub.mk); everything else is C and S by wildcard.
src_of   = $(filter-out platform/stub/%,$(shell find $(1) -name '*.c' -o -name '*.S'))
objs_of  = $(patsubst %,$(BUILD)/%.o,$(basename $(call src_of,$(1))))
OBJS    := $(foreach m,$(MODULES),$(call objs_of,$(m)))
LIBS    := $(foreach m,$(filter-out cli,$(MODULES)),$(BUILD)/lib$(m).a)

all: $(BUILD)/minisentry

-include platform/stub/stub.mk
-include sentry/audit/audit.mk
-include test/test.mk

$(BUILD)/minisentry: $(call objs_of,cli) $(LIBS)
	$(CC) $(VARIANT) -o $@ $(call objs_of,cli) -Wl,--start-group $(LIBS) -Wl,--end-group $(LDLIBS)

define module
$(BUILD)/lib$(1).a: $(call objs_of,$(1))
	@rm -f $$@
	@ar rcs $$@ $$^
objs-$(1): $(call objs_of,$(1))
endef
$(foreach m,$(MODULES),$(eval $(call module,$(m))))

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	@$(CC) $(ALLFLAGS) -c -o $@ $<
$(BUILD)/%.o: %.S
	@mkdir -p $(@D)
	@echo "  CC    $<"
	@$(CC) $(ALLFLAGS) -c -o $@ $<

clean:
	rm -rf build
.PHONY: all clean $(foreach m,$(MODULES),objs-$(m))
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
