# The sentry's seccomp filter is compiled when minisentry is built, by a program of its own, which alone needs libseccomp.
FILTER_GEN := $(BUILD)/gen/filter_gen

$(FILTER_GEN): sentry/confine/filter_gen.c sentry/confine/filter_table.c sentry/confine/filter_table.h sentry/confine/confine.h
	@mkdir -p $(@D)
	@echo "  GEN   $@"
	@$(CC) $(filter-out -fsanitize% -MMD -MP,$(ALLFLAGS)) -o $@ $(filter %.c,$^) -lseccomp
$(BUILD)/gen/confine_filter.h: $(FILTER_GEN)
	$< >$@.new && mv $@.new $@
$(BUILD)/sentry/confine/filter.o: $(BUILD)/gen/confine_filter.h
