# run_dist -- one Makefile, one folder per build: build/<variant>/. `make help` lists the verbs.
VARIANT ?= release
BUILD   := build/$(VARIANT)
CC      := mpicc
PKGS    := jansson libarchive
OPT     ?= -O3
ARCH    ?= -march=native

ifeq ($(filter clean help deps distclean,$(MAKECMDGOALS)),)
  ifeq ($(shell command -v $(CC)),)
    $(error mpicc is not installed; on Debian: apt-get install libopenmpi-dev openmpi-bin, or run `make deps`)
  endif
  ifneq ($(shell pkg-config --print-errors --exists $(PKGS) 2>&1 && echo yes),yes)
    $(error $(shell pkg-config --print-errors --exists $(PKGS) 2>&1). Install the packages named above, or run `make deps`)
  endif
endif

CPPFLAGS += -D_GNU_SOURCE -Iinclude -I$(BUILD)/gen $(shell pkg-config --cflags $(PKGS))
CFLAGS   += -std=c11 -g $(OPT) $(ARCH) -fopenmp -fno-math-errno -fno-trapping-math -Wall -Wextra -Wshadow -Wundef -Wvla \
            -Wstrict-prototypes -Wmissing-prototypes -Werror
CFLAGS   += $(SAN:%=-fsanitize=% -fno-sanitize-recover=all -fno-omit-frame-pointer)
LDFLAGS  += -fopenmp $(SAN:%=-fsanitize=%)
LDLIBS   += $(shell pkg-config --libs $(PKGS)) -ldnnl -lm -lpthread

SRC   := $(filter-out runner/main.c,$(wildcard runner/*.c runner/*/*.c runner/*/*/*.c models/*.c))
OBJ   := $(SRC:%=$(BUILD)/%.o)
LIB   := $(BUILD)/librd.a
PROG  := $(BUILD)/run_dist
UNIT  := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/*.c tests/ops/*.c tests/golden/*.c))
TOOLS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/support/*.c tests/bench/*.c))
FUZZ  := $(patsubst %.c,$(BUILD)/%,$(filter-out tests/fuzz/replay.c,$(wildcard tests/fuzz/*.c)))

all: $(PROG) ## the program: build/release/run_dist

# A generated file changes only when its text does.
replace = @mkdir -p $(@D) && printf '$(1)\n' $(2) > $@.new && (cmp -s $@.new $@ && rm $@.new || mv $@.new $@)
FORCE:
$(BUILD)/flags: FORCE
	$(call replace,%s,'$(CC) $(CPPFLAGS) $(CFLAGS)')
define registry
$(BUILD)/gen/$(1).inc: FORCE
	$$(call replace,RD_ENTRY(%s),$$(basename $$(notdir $$(sort $$(wildcard $(2)/*.c)))))
GEN += $(BUILD)/gen/$(1).inc
endef
$(eval $(call registry,models,models))
$(eval $(call registry,ops,runner/ops))
$(eval $(call registry,datasets,runner/data/datasets))
$(eval $(call registry,metrics,runner/data/metrics))
$(eval $(call registry,optimizers,runner/optim/optimizers))

$(BUILD)/%.c.o: %.c $(BUILD)/flags | $(GEN)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@
$(LIB): $(OBJ)
	@rm -f $@
	ar rcs $@ $(OBJ)
$(PROG): $(BUILD)/runner/main.c.o $(LIB)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@

# A test is one file: build/release/tests/unit/x from tests/unit/x.c, with cmocka.
$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.c.o $(LIB)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -lcmocka -o $@
$(BUILD)/tests/ops/%: $(BUILD)/tests/ops/%.c.o $(LIB)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -lcmocka -o $@
$(BUILD)/tests/golden/%: $(BUILD)/tests/golden/%.c.o $(LIB)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -lcmocka -o $@
$(BUILD)/tests/fuzz/%: $(BUILD)/tests/fuzz/%.c.o $(BUILD)/tests/fuzz/replay.c.o $(LIB)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(BUILD)/tests/support/%: $(BUILD)/tests/support/%.c.o $(LIB)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@
$(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.c.o $(LIB)
	$(CC) $(LDFLAGS) $^ $(LDLIBS) -o $@

clean: ## remove this variant's build folder
	rm -rf $(BUILD)
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: all clean help FORCE
.PRECIOUS: $(BUILD)/%.c.o
-include $(OBJ:.o=.d) $(BUILD)/runner/main.c.d
