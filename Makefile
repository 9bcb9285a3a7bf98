# Makefile -- builds, tests and installs run_dist, with one folder per build: build/<variant>/.
# `make help` lists the targets, runner/BUILD.md the variables.
VERSION := 0.1.0
# DEBUG=1: with rd_assert (include/rd/status.h), and code that a debugger can follow. SAN=... has rd_assert too.
DEBUG   ?=
VARIANT ?= $(if $(CUDA),$(patsubst 1,cuda,$(CUDA))$(if $(DEBUG),-debug),$(if $(DEBUG),debug,release))
BUILD   := build/$(VARIANT)
CC      := mpicc
OPT     ?= $(if $(DEBUG),-Og,-O3)
ARCH    ?= -march=native
OPENMP  ?= -fopenmp
PREFIX  ?= /usr/local
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
SUITE   ?= all
T       :=
# CUDA=1: with the GPU backend. For tests without a GPU: CUDA=fake, the same driver with its kernels as host code and a
# fake of CUDA's libraries (tests/support/fake); CUDA=emulated, the kernels and another driver (tests/support/emulated).
CUDA    ?=
comma   := ,
PKGS    := jansson libarchive libpcre2-8 libturbojpeg zlib
# oneDNN has no .pc file. For your own oneDNN:
#   make DNNL_CFLAGS=-I/opt/dnnl/include DNNL_LIBS='-L/opt/dnnl/lib -Wl,-rpath,/opt/dnnl/lib -ldnnl'
DNNL_CFLAGS ?=
DNNL_LIBS   ?= -ldnnl
# SentencePiece is optional and needs g++: its version, if pkg-config finds it. make SENTENCEPIECE= builds without it.
ifndef SENTENCEPIECE
  SENTENCEPIECE := $(if $(shell command -v g++),$(shell pkg-config --modversion sentencepiece 2> /dev/null))
endif
# utf8proc is optional, too: make UTF8PROC= builds without it.
ifndef UTF8PROC
  UTF8PROC := $(shell pkg-config --modversion libutf8proc 2> /dev/null)
endif
# Debian packages that make, make test and mpirun need.
DEPS := build-essential pkg-config libopenmpi-dev openmpi-bin libjansson-dev libarchive-dev zlib1g-dev libturbojpeg0-dev libpcre2-dev libsentencepiece-dev libutf8proc-dev libdnnl-dev libcmocka-dev procps

NEED := $(filter-out deb tarball clean distclean help deps deps-names demo demo-translate demo-lm format format-check mutate uninstall,$(or $(MAKECMDGOALS),all))
ifneq ($(NEED),)
  hint = on Debian: apt-get install $(1), or let `make deps` install all that is needed
  ifeq ($(shell command -v $(CC)),)
    $(error $(CC) is not installed; $(call hint,libopenmpi-dev openmpi-bin))
  endif
  ifeq ($(shell command -v pkg-config),)
    $(error pkg-config is not installed; $(call hint,pkg-config))
  endif
  lacks = $(shell pkg-config --exists $(1) || echo $(1))
  $(foreach p,$(PKGS),$(if $(call lacks,$(p)),$(error the library $(p) is not installed; \
    $(call hint,$(subst pcre2-8,pcre2,$(subst turbojpeg,turbojpeg0,lib$(patsubst lib%,%,$(p))))-dev))))
  ifneq ($(filter test test-all asan% tsan programs gpu-% fuzz%,$(NEED)),)
    $(if $(call lacks,cmocka),$(error the library cmocka is not installed; $(call hint,libcmocka-dev)))
  endif
  PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS))
  PKG_LIBS   := $(shell pkg-config --libs $(PKGS))
endif

CPPFLAGS += -D_GNU_SOURCE -Iinclude -I$(BUILD)/gen $(PKG_CFLAGS) $(DNNL_CFLAGS) $(if $(DEBUG)$(SAN),-DRD_DEBUG)
# With -fno-math-errno gcc compiles sqrtf to a vector instruction. Neither of the two -fno flags changes a result.
CFLAGS   += -std=c11 -g $(OPT) $(ARCH) $(OPENMP) -fno-math-errno -fno-trapping-math -Wall -Wextra -Wshadow -Wundef -Wvla \
            -Wstrict-prototypes -Wmissing-prototypes -Werror
# With sanitizers gcc knows less about sizes and values, so its warnings about them are off there.
CFLAGS   += $(SAN:%=-fsanitize=% -fno-sanitize-recover=all -fno-omit-frame-pointer -Wno-format-truncation -Wno-maybe-uninitialized)
LDFLAGS  += $(OPENMP) $(SAN:%=-fsanitize=%) $(filter --coverage,$(OPT) $(DRIVER_FLAGS))
LDLIBS   += $(PKG_LIBS) $(DNNL_LIBS) $(if $(filter -fopenmp-simd,$(OPENMP)),-lgomp) -lm -lpthread

# In runner/engine/gpu, cuda_* calls the CUDA libraries (CUDA=1 or fake). gpu_rnn.c, gpu_backend.c and gpu_recurs.c need a
# GPU backend (CUDA=1, fake or emulated). gpu_none.c stands in for it elsewhere. The other files are host logic.
NO_GPU := $(if $(filter 1 fake,$(CUDA)),,runner/engine/gpu/cuda_%) \
          $(addprefix runner/engine/gpu/,$(if $(CUDA),gpu_none.c,gpu_rnn.c gpu_backend.c gpu_recurs.c))
SRC   := $(filter-out runner/main.c $(NO_GPU),$(wildcard runner/*.c runner/*/*.c runner/*/*/*.c models/*.c))
# nvcc compiles the GPU kernels. For CUDA=emulated and fake g++ compiles them, with
# tests/support/emulated/kernel_emulated.h included first.
KERNELS := $(filter-out $(NO_GPU),$(if $(CUDA),$(wildcard runner/*/*.cu runner/*/*/*.cu)))
EMULATED := $(if $(filter emulated,$(CUDA)),$(wildcard tests/support/emulated/*.cc)) \
            $(if $(filter fake,$(CUDA)),$(wildcard tests/support/fake/*.cc) $(patsubst %,tests/support/emulated/%_emulated.cc,blocks cudnn memory numbers))
CXX_SRC := $(if $(SENTENCEPIECE),$(wildcard runner/text/schemes/*.cc))
OBJ   := $(patsubst %,$(BUILD)/%.o,$(SRC) $(KERNELS) $(EMULATED) $(CXX_SRC))
LIB   := $(BUILD)/librd.a
PROG  := $(BUILD)/run_dist
# Linked before $(LIB) into every program.
EXTRA := $(if $(findstring address,$(SAN)),$(BUILD)/tests/support/asan/mpi_leaks.c.o)
# A test is one .c file with cmocka, or one shell script. Files of tests/support and tests/bench with a main are programs, those
# without are shared by all tests.
# dnn_plans.c calls the real cuDNN, driver_failures.c needs the fake runtime.
UNIT  := $(patsubst %.c,$(BUILD)/%,$(filter-out $(if $(filter 1,$(CUDA)),,tests/gpu/dnn_plans.c) $(if $(filter fake,$(CUDA)),,tests/gpu/driver_failures.c),\
         $(wildcard tests/unit/*.c tests/ops/*.c tests/golden/*.c tests/fault/*.c $(if $(CUDA),tests/gpu/*.c))))
MPI   := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/mpi/*.c))
FUZZ  := $(patsubst %.c,$(BUILD)/%,$(filter-out tests/fuzz/replay.c,$(wildcard tests/fuzz/*.c)))
MAINS := $(shell grep -l '^int main' tests/support/*.c tests/bench/*.c 2>/dev/null)
TOOLS := $(patsubst %.c,$(BUILD)/%,$(MAINS))
SHARED := $(patsubst %.c,$(BUILD)/%.c.o,$(filter-out $(MAINS),$(wildcard tests/support/*.c)))
# A library that makes calls for files fail (LD_PRELOAD).
FAULTS := $(BUILD)/tests/support/io_faults.so
SHELLS := $(wildcard tests/unit/*.sh tests/scripts/*.sh tests/golden/*.sh tests/mpi/*.sh tests/fault/*.sh $(if $(CUDA),tests/gpu/*.sh))

ifneq ($(SENTENCEPIECE),)
  LDLIBS   += -Wl,--as-needed $(shell pkg-config --libs sentencepiece) -lstdc++ -Wl,--no-as-needed
endif
ifneq ($(UTF8PROC),)
  LDLIBS   += -Wl,--as-needed $(shell pkg-config --libs libutf8proc) -Wl,--no-as-needed
endif
ifneq ($(CUDA),)
  CPPFLAGS += -DRD_CUDA
  LDLIBS   += -lstdc++
endif
ifeq ($(CUDA),emulated)
  CPPFLAGS += -Itests/support/emulated
endif
ifeq ($(CUDA),fake)
  CPPFLAGS += -DRD_FAKE -Itests/support/fake -Itests/support/emulated
  LDFLAGS  += $(patsubst %,-Wl$(comma)--wrap=%,dlopen dlsym dlerror dlclose)
endif
ifeq ($(CUDA),1)
  NVCC      ?= $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
  $(if $(NVCC),,$(error nvcc is not installed; CUDA=1 needs the CUDA Toolkit (NVCC=/path/to/nvcc says where)))
  CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
  SM        ?= 80 90
  CPPFLAGS  += -isystem $(CUDA_HOME)/include
  LDLIBS    += $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a $(CUDA_HOME)/lib/libcudart_static.a)) -ldl -lrt
  NVFLAGS   += -std=c++17 -O3 --threads 2 $(foreach s,$(SM),-gencode arch=compute_$s,code=sm_$s) -gencode arch=compute_$(lastword $(SM)),code=compute_$(lastword $(SM)) \
               -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror,-fopenmp-simd
  # A kernel that spills registers is an error. This holds for the compiler and the GPUs for which it was checked.
  NVFLAGS   += $(if $(and $(findstring release 13.0,$(shell $(NVCC) --version)),$(if $(filter-out 80 90 100,$(SM)),,yes)),-Xptxas --warn-on-spills)
endif

# make V=1 shows whole commands.
say = $(if $(V),,@printf '%-4s %s\n' $(1) $(2) && )
LINK = $(call say,LINK,$@)$(CC) $(LDFLAGS) $^ $(LDLIBS)

# Programs that prepare vocabularies and subwords of a user's own text.
TEXT_TOOLS = $(BUILD)/run_dist-vocab $(BUILD)/run_dist-bpe
all: $(PROG) $(TEXT_TOOLS) ## the programs: build/release/run_dist, run_dist-vocab, run_dist-bpe

# A generated file is written only if its text changes.
replace = @mkdir -p $(@D) && printf '$(1)\n' $(2) > $@.new && (cmp -s $@.new $@ && rm $@.new || mv $@.new $@)
FORCE:
$(BUILD)/flags: FORCE
	$(call replace,%s,'$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(LDLIBS)')
$(BUILD)/gen/version.h: FORCE
	$(call replace,#define RD_VERSION "%s"\n#define RD_COMMIT "%s",$(VERSION) \
	    $(or $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null),unknown))
# The registries. $(call registry,NAME,MACRO,FOLDER) writes gen/NAME.inc with one RD_ENTRY(id) for each part. A part is a
# definition at the beginning of a line: RD_MODEL(seq2seq), or a macro of a family, RD_MODEL_VGG(vgg16, ...).
define registry
$(BUILD)/gen/$(1).inc: FORCE
	@mkdir -p $$(@D) && runner/registry.sh $(2) $$(wildcard $(3)/*.c) > $$@.new && (cmp -s $$@.new $$@ && rm $$@.new || mv $$@.new $$@)
GEN += $(BUILD)/gen/$(1).inc
endef
$(eval $(call registry,models,MODEL,models))
$(eval $(call registry,ops,OP,runner/ops))
$(eval $(call registry,cells,CELL,runner/ops/cells))
$(eval $(call registry,datasets,DATASET,runner/data/datasets))
$(eval $(call registry,subwords,SUBWORD,runner/text/schemes))
$(eval $(call registry,metrics,METRIC,runner/data/metrics))
$(eval $(call registry,class_metrics,CLASS_METRIC,runner/data/metrics))
$(eval $(call registry,optimizers,OPTIMIZER,runner/optim/optimizers))
# Style and program of the page of --mode=report, as arrays.
PAGE := runner/runs/report.css runner/runs/report.js
$(BUILD)/gen/report_assets.inc: $(PAGE) runner/runs/embed.sh
	@mkdir -p $(@D) && runner/runs/embed.sh $(PAGE) > $@
GEN += $(BUILD)/gen/version.h $(BUILD)/gen/report_assets.inc

# Checks once per set of flags that oneDNN is installed.
$(BUILD)/gen/dnnl.ok: $(BUILD)/flags
	@mkdir -p $(@D); printf '#include <dnnl.h>\nint main(void) { return dnnl_version() == NULL; }\n' | \
	    $(CC) $(CPPFLAGS) -x c - $(DNNL_LIBS) -o $@.exe 2> $@.log && rm -f $@.exe && mv $@.log $@ || { cat $@.log; \
	    echo "the library oneDNN is not installed (the lines above say what the compiler missed); on Debian: apt-get install" \
	    "libdnnl-dev, or let \`make deps\` install all that is needed; elsewhere set DNNL_CFLAGS and DNNL_LIBS"; exit 1; } >&2

# After a commit, make compiles only the files that contain the version.
$(patsubst %,$(BUILD)/%.o,$(shell grep -l RD_COMMIT $(SRC) runner/main.c 2>/dev/null)): private CPPFLAGS += -include version.h

$(patsubst %,$(BUILD)/%.c.o,runner/text/schemes/sentencepiece tests/unit/subword_sentencepiece): \
    private CPPFLAGS += $(SENTENCEPIECE:%=-DRD_SENTENCEPIECE='"%"')
$(patsubst %,$(BUILD)/%.c.o,runner/text/normalize tests/unit/subword_normal): \
    private CPPFLAGS += $(UTF8PROC:%=-DRD_UTF8PROC) $(if $(UTF8PROC),$(shell pkg-config --cflags libutf8proc))

# DRIVER_FLAGS: more flags for the files of the GPU driver. tests/gpu/coverage counts their lines alone.
$(patsubst %,$(BUILD)/%.o,$(filter runner/engine/gpu/%,$(SRC) $(KERNELS))): private MORE = $(DRIVER_FLAGS)

$(BUILD)/%.c.o: %.c $(BUILD)/flags | $(GEN) $(BUILD)/gen/dnnl.ok
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(CFLAGS) $(MORE) -MMD -MP -c $< -o $@
CXX_PLAIN = g++ $(CPPFLAGS) -std=c++17 -g $(OPT) $(MORE) $(ARCH) -fopenmp -Wall -Wextra -Werror -Wno-unknown-pragmas \
            $(SAN:%=-fsanitize=% -fno-sanitize-recover=all -fno-omit-frame-pointer)
ifeq ($(CUDA),1)
$(BUILD)/%.cu.o: %.cu $(BUILD)/flags | $(GEN)
	@mkdir -p $(@D)
	$(call say,NVCC,$<)$(NVCC) $(NVFLAGS) $(filter -D% -I%,$(CPPFLAGS)) -MMD -MP -MF $@.d -c $< -o $@
else
$(BUILD)/%.cu.o: %.cu $(BUILD)/flags | $(GEN)
	@mkdir -p $(@D)
	$(call say,EMU,$<)$(CXX_PLAIN) -include kernel_emulated.h $(if $(filter fake,$(CUDA)),-include cuda_runtime_api.h) -MMD -MP -x c++ -c $< -o $@
endif
$(BUILD)/%.cc.o: %.cc $(BUILD)/flags | $(GEN)
	@mkdir -p $(@D)
	$(call say,CXX,$<)$(CXX_PLAIN) -MMD -MP -c $< -o $@
$(LIB): $(OBJ)
	@rm -f $@
	$(call say,AR,$@)ar rcs $@ $(OBJ)
$(PROG): $(BUILD)/runner/main.c.o $(EXTRA) $(LIB)
	$(LINK) -o $@
$(UNIT) $(MPI): $(BUILD)/%: $(BUILD)/%.c.o $(SHARED) $(EXTRA) $(LIB)
	$(LINK) -lcmocka -o $@
# replay.c has a main that runs the corpus. libFuzzer (FUZZ_MAIN) has its own main.
$(FUZZ): $(BUILD)/%: $(BUILD)/%.c.o $(if $(FUZZ_MAIN),,$(BUILD)/tests/fuzz/replay.c.o) $(EXTRA) $(LIB)
	$(LINK) $(FUZZ_MAIN) -o $@
$(TOOLS): $(BUILD)/%: $(BUILD)/%.c.o $(SHARED) $(EXTRA) $(LIB)
	$(LINK) -o $@
$(TEXT_TOOLS): $(BUILD)/run_dist-%: $(BUILD)/configs/tools/run_dist_%.c.o $(EXTRA) $(LIB)
	$(LINK) -o $@
$(FAULTS): tests/support/preload/io_faults.c tests/support/io_faults.h
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) -std=c11 -g -O2 -D_GNU_SOURCE -Wall -Wextra -Werror -Itests/support -shared -fPIC $< -Wl,--as-needed -ldl -o $@
$(UNIT:%=%.c.o) $(MPI:%=%.c.o) $(TOOLS:%=%.c.o) $(SHARED): private CPPFLAGS += -Itests/support

demo: ## installs missing packages, builds, trains spelling to sound with 2 ranks for some minutes, then you can try it
demo-translate: ## fetches text, trains English to German with 2 ranks for five minutes, then translates what you type
demo-lm: ## fetches novels, trains a language model with 2 ranks for five minutes, then continues what you type
demo demo-translate demo-lm:
	@command -v $(CC) mpirun pkg-config > /dev/null && pkg-config --exists $(PKGS) && \
	    printf '#include <dnnl.h>\n' | $(CC) $(DNNL_CFLAGS) -x c -fsyntax-only - 2> /dev/null || $(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@PROG=$(PROG) BUILD=$(BUILD) configs/$(subst -,_,$@).sh

# make test T="unit/npz mpi/watch cli/run_*" builds what these tests need and runs them; tests/README.md says more.
# make test SUITE=... runs one suite: unit (cmocka, scripts, fuzz corpora), mpi (programs under mpirun), cli, gpu, or all.
# hosts waits for minutes, and is for CI and test-all. ranks is for the sanitizers (outside test-all): no test that mostly
# waits or ends processes, no golden networks, no command line, no run whose last digits decide.
# Long ones first, so that the last ones end together.
TESTS_unit := $(filter tests/scripts/%,$(SHELLS)) $(UNIT) $(FUZZ) $(filter tests/unit/% tests/golden/%,$(SHELLS))
HOSTS      := $(patsubst %,tests/mpi/%.sh,cluster cluster_train hosts launch_hosts rows_hosts slurm transformer_hosts update_hosts)
LONG       := $(patsubst %,tests/mpi/%.sh,doctor doctor_agree supervise signals watch images end finite logdir other_ranks decode batch_tokens average checkpoints \
              raw_text spikes transformer exchange launch lm whole sweep rows any flow comm trace best changed ends descent) \
              $(wildcard tests/fault/*.sh) $(BUILD)/tests/golden/images tests/cli/run \
              $(patsubst %,tests/scripts/%.sh,lint_finds install docker gpu_check) tests/unit/typing.sh tests/unit/translation_tasks.sh
TESTS_hosts := $(HOSTS)
TESTS_mpi  := $(filter-out $(HOSTS),$(filter tests/mpi/% tests/fault/%,$(SHELLS)))
TESTS_cli  := $(if $(wildcard tests/cli/*/cmd),tests/cli/run)
TESTS_gpu  := $(filter tests/gpu/%,$(SHELLS))
TESTS_all  := $(TESTS_unit) $(TESTS_cli) $(TESTS_mpi) $(TESTS_gpu)
TESTS_ranks := $(filter-out $(LONG),$(TESTS_all))
TESTS_whole := $(TESTS_all) $(filter-out $(patsubst %,tests/mpi/%.sh,cluster cluster_train slurm),$(HOSTS))
PROGRAMS := $(PROG) $(TEXT_TOOLS) $(UNIT) $(MPI) $(FUZZ) $(TOOLS) $(FAULTS)
ifneq ($(and $(T),$(filter test,$(MAKECMDGOALS))),)
  pick = $(shell BUILD=$(BUILD) PROG=$(PROG) PROGRAMS='$(filter-out $(PROG) $(TEXT_TOOLS),$(PROGRAMS))' tests/pick $(1) || echo FAILED)
  PICKED := $(call pick,tests '$(T)' $(TESTS_unit) $(TESTS_mpi) $(HOSTS) $(TESTS_gpu) $(patsubst %/cmd,%,$(wildcard tests/cli/*/cmd)))
  $(if $(filter FAILED,$(PICKED)),$(error T='$(T)': see above))
  PICKED_PROGRAMS := $(call pick,needs $(PICKED))
endif
programs: $(PROGRAMS)
test: $(if $(T),$(PICKED_PROGRAMS) $(TEXT_TOOLS),programs) ## every test that needs no GPU, or those of T: make test T="unit/npz cli/run_*"
	@BUILD=$(BUILD) tests/run --jobs $(JOBS) --logs $(BUILD)/logs $(if $(T),$(PICKED),$(TESTS_$(SUITE)))
test-all: export CASES ?= all
test-all: ## every test in full length: with sanitizers, several hosts, Slurm, whole matrices, headers and lint (an hour)
	@failed=; for part in "headers lint" "asan SUITE=whole" tsan "test SUITE=hosts" gpu-test gpu-asan test; do \
	    echo "==== make $$part, $$(date +%T)"; $(MAKE) --no-print-directory $$part || failed="$$failed; make $$part"; \
	done; echo "==== $$(date +%T)"; [ -z "$$failed" ] || { echo "make test-all: failed$$failed" >&2; exit 1; }
ASAN := VARIANT=asan SAN=address,undefined OPT=-O1
asan: ## tests under AddressSanitizer and UBSan; SUITE=whole: the long ones too
	@$(MAKE) --no-print-directory $(ASAN) SUITE=$(if $(filter all,$(SUITE)),ranks,$(SUITE)) test
asan-programs:
	@$(MAKE) --no-print-directory $(ASAN) programs
# Without OpenMP: ThreadSanitizer does not see the barriers of libgomp, and would report each loop.
TSAN := VARIANT=tsan SAN=thread OPT=-O1 OPENMP=-fopenmp-simd
TSAN_T := unit/barrier unit/subword_threads unit/watch unit/image_data unit/image_batches mpi/flow mpi/image_data \
          $(if $(filter all,$(CASES)),mpi/watch)
tsan: ## tests of the code with threads (exchange, watch, image workers) under ThreadSanitizer
	@$(MAKE) --no-print-directory $(TSAN) T='$(or $(T),$(TSAN_T))' test
mutate: ## changes the program in one place at a time: a test must fail each time (half an hour): make mutate [N="3 schedule"]
	@tests/mutate --jobs $(JOBS) $(N)
bench: $(PROG) $(TOOLS) ## speed: shares of the machine's own peak, scaling, PyTorch doing the same where it is installed
	@BUILD=$(BUILD) PROG=$(PROG) tests/bench/run
# The GPU targets use CUDA=1, or the build that the user asks for, for example by VARIANT. The bundle is for other
# machines, so it is not compiled for the CPU of this one.
gpu-programs: $(PROG) $(filter $(BUILD)/tests/gpu/% $(BUILD)/tests/ops/% $(BUILD)/tests/golden/% $(BUILD)/tests/unit/optim_step,$(UNIT)) \
    $(patsubst %,$(BUILD)/tests/%,support/make_toy support/npz_same mpi/shard)
ifeq ($(CUDA),)
gpu-test: ## the GPU backend's tests: without a GPU, on a fake runtime (build/fake, build/emulated); with one: make CUDA=1 gpu-test
	@$(MAKE) --no-print-directory CUDA=fake OPT=-O2 $@
	@$(MAKE) --no-print-directory CUDA=emulated OPT=-O2 $@
gpu-coverage: ## the share of the GPU driver's lines that the tests on the fake runtime execute: at least 85 %
	@tests/gpu/coverage
# Without use after return: for that check GCC 12 lays out stacks on which vectors of 64 bytes (AVX-512) are not aligned.
gpu-asan: ## failures of the GPU driver under AddressSanitizer and UBSan, on the fake runtime
	@ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=0 \
	    $(MAKE) --no-print-directory CUDA=fake VARIANT=fake-asan SAN=address,undefined OPT=-O1 \
	    T='$(or $(T),gpu/driver_failures gpu/gpu_basics gpu/lstm)' test
gpu-check: ## on a machine with a GPU: ops, tests, loss curves, speed, sanitizers, and a report: make CUDA=1 gpu-check CHECK='--part 1'
	@$(MAKE) --no-print-directory CUDA=1 $@
gpu-bundle: ## everything that gpu-check needs on a machine with a GPU, in one folder to copy: build/gpu-bundle
	@$(MAKE) --no-print-directory CUDA=1 VARIANT=cuda-v3 ARCH=-march=x86-64-v3 $@
else
gpu-test: gpu-programs
	@BUILD=$(BUILD) tests/run --jobs $(JOBS) --logs $(BUILD)/logs $(filter tests/gpu/%,$(SHELLS)) $(BUILD)/tests/gpu/ops \
	    $(filter %/dnn_plans %/driver_failures,$(UNIT))
gpu-check: gpu-programs
	@BUILD=$(BUILD) tests/gpu/check $(CHECK)
gpu-bundle: gpu-programs
	@BUILD=$(BUILD) tests/gpu/bundle
endif
# make fuzz FUZZER=npz SECONDS=600 needs clang. Inputs that crash are stored in build/fuzz/. NAME.dict is a dictionary.
fuzz: ## libFuzzer on one reader: make fuzz FUZZER=npz SECONDS=60
	@OMPI_CC=clang CFLAGS='-Wno-unknown-warning-option -Wno-pass-failed' $(MAKE) --no-print-directory VARIANT=fuzz SENTENCEPIECE= \
	    SAN=fuzzer-no-link,address,undefined OPT=-O1 OPENMP=-fopenmp-simd FUZZ_MAIN=-fsanitize=fuzzer build/fuzz/tests/fuzz/$(FUZZER)
	@mkdir -p build/fuzz/corpus/$(FUZZER)
	ASAN_OPTIONS=detect_leaks=1:external_symbolizer_path=:allocator_may_return_null=1 build/fuzz/tests/fuzz/$(FUZZER) -max_total_time=$(or $(SECONDS),60) \
	    -rss_limit_mb=4096 $(patsubst %,-dict=%,$(wildcard tests/fuzz/$(FUZZER).dict)) \
	    -artifact_prefix=build/fuzz/crash-$(FUZZER)- build/fuzz/corpus/$(FUZZER) tests/fuzz/corpus/$(FUZZER)

headers: ## every public header compiles alone, as C and as C++
	@for h in include/rd/*.h; do \
	    printf '#include "%s"\n' "$${h#include/}" | $(CC) $(CPPFLAGS) -std=c11 -Wall -Wextra -Werror -fsyntax-only -x c - || exit 1; \
	    printf '#include "%s"\n' "$${h#include/}" | g++ $(CPPFLAGS) -std=c++17 -Wall -Wextra -Werror -fsyntax-only -x c++ - || exit 1; \
	done; echo "headers: all compile alone"
objects: $(OBJ) $(BUILD)/runner/main.c.o
lint: format-check objects $(PROG) ## format, words and sizes of pages, order of folders, circles of objects, unique names, shellcheck
	@PROG=$(CURDIR)/$(PROG) tests/support/docs.sh words && PROG=$(CURDIR)/$(PROG) tests/support/docs.sh sizes
	@if command -v $(or $(NVCC),nvcc) > /dev/null; then $(MAKE) --no-print-directory CUDA=1 SM=80 objects; \
	    else echo "lint: nvcc is not installed, so the objects of the CUDA build are not checked"; fi
	@tests/lint
TIDY := -*,bugprone-*,clang-analyzer-*,-bugprone-easily-swappable-parameters,-bugprone-narrowing-conversions,$\
        -bugprone-implicit-widening-of-multiplication-result,-bugprone-macro-parentheses,-bugprone-sizeof-expression,$\
        -bugprone-reserved-identifier,-bugprone-branch-clone,-bugprone-assignment-in-if-condition,$\
        -clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling,-clang-analyzer-security.insecureAPI.strcpy
tidy: $(GEN) ## clang-tidy on the program's files: make tidy [FILES=runner/base/status.c]
	@clang-tidy --quiet --warnings-as-errors='*' --checks='$(TIDY)' $(or $(FILES),$(SRC) runner/main.c) -- \
	    $(CPPFLAGS) -std=c11 -fopenmp-simd $(shell $(CC) --showme:compile 2>/dev/null) -include $(BUILD)/gen/version.h
# All C, CUDA and C++ files. Versions of clang-format break lines differently, so the check needs version 14 (Debian 12).
FORMATTED = $(or $(FILES),$(shell git ls-files '*.c' '*.h' '*.cu' '*.cc'))
format: ## clang-format on all files, or on FILES
	clang-format -i $(FORMATTED)
format-check: ## every file is as `make format` leaves it
	@case "$$(clang-format --version 2> /dev/null)" in \
	*' version 14.'*) clang-format --dry-run -Werror $(FORMATTED) && echo "format: clean" ;; \
	*) echo "format: skipped, clang-format 14 is not installed" ;; esac
schema: $(PROG) ## configs/schema.json from the option tables
	$(PROG) --print_schema > $(BUILD)/schema.json && mv $(BUILD)/schema.json configs/schema.json

# The shares of an installation. Pages keep their folders below $(DOC), so that their links work.
PAGES = $(or $(shell git ls-files '*.md' LICENSE 2>/dev/null),$(shell find . -path ./build -prune -o -name '*.md' -print -o -path ./LICENSE -print))
SHARE = $(DESTDIR)$(PREFIX)/share
DOC   = $(SHARE)/doc/run_dist
INSTALLED = $(addprefix bin/,run_dist $(notdir $(TEXT_TOOLS)) run_dist-cluster) share/run_dist \
            $(patsubst %,share/man/man1/%.1,run_dist $(notdir $(TEXT_TOOLS)) run_dist-cluster) \
            share/bash-completion/completions/run_dist share/zsh/site-functions/_run_dist share/fish/vendor_completions.d/run_dist.fish
install: $(PROG) $(TEXT_TOOLS) ## to PREFIX (/usr/local), below DESTDIR; for other machines: make VARIANT=v3 ARCH=-march=x86-64-v3 install
	@PROG=$(PROG) TEXT_TOOLS='$(TEXT_TOOLS)' ROOT=$(DESTDIR)$(PREFIX) DOC=$(DOC) PAGES='$(PAGES)' docker/install
uninstall: ## removes what install wrote
	rm -rf $(addprefix $(DESTDIR)$(PREFIX)/,$(INSTALLED)) $(DOC)
# A package for other machines runs on every x86-64 CPU since 2013.
PACKAGE := $(if $(filter x86_64,$(shell uname -m)),VARIANT=v3 ARCH=-march=x86-64-v3,VARIANT=portable ARCH=)
deb tarball: ## a Debian package, or an archive that runs from any folder, in build/
	@$(MAKE) --no-print-directory $(PACKAGE) package-$@
package-deb package-tarball: $(PROG) $(TEXT_TOOLS)
	@MAKE='$(MAKE) --no-print-directory -s VARIANT=$(VARIANT) ARCH=$(ARCH) PROG=$(PROG)' VERSION=$(VERSION) docker/package $(@:package-%=%) build
deps: ## installs the needed packages (Debian and derivatives; asks sudo)
	@command -v apt-get > /dev/null || { echo "no apt-get here; install what Debian calls: $(DEPS)" >&2; exit 1; }
	$(if $(filter-out 0,$(shell id -u)),sudo) apt-get update
	$(if $(filter-out 0,$(shell id -u)),sudo) env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(DEPS)
deps-names:
	@echo $(DEPS)
clean: ## removes this variant's build folder
	rm -rf $(BUILD)
distclean: ## removes all build folders
	rm -rf build
help: ## prints this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: deb tarball package-deb package-tarball all demo demo-translate demo-lm programs test test-all asan asan-programs tsan mutate bench gpu-programs gpu-test gpu-coverage gpu-asan gpu-check gpu-bundle fuzz headers objects lint tidy format format-check schema install uninstall deps deps-names clean distclean help FORCE
.PRECIOUS: $(BUILD)/%.c.o
.DELETE_ON_ERROR:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
