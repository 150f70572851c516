/* What the machine code of a network needs to run by itself: memory, threads, and the functions that TVM's runtime
 * would give it. C99 with the builtins and libraries of GNU. Before it stand BATCH, CONSTANT_BYTES, MOST_INPUTS, MOST_AXES
 * and NEEDS_TILES, behind it the tables that it reads. */
#include "thread_pool.h"
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGNMENT ((size_t)64)
#define LARGE_PAGE ((size_t)1 << 21)

enum { KERNEL_FAILED = -1, OTHER_STREAMS = -2, NO_SAMPLES = -3 };
enum { INT_CODE = 0, UINT_CODE = 1, FLOAT_CODE = 2, BOOL_CODE = 6 };

/* Arguments as TVM packs them. */
enum { TENSOR_ARGUMENT = 7, CPU = 1 };

typedef struct {
  int32_t kind, padding;
  union {
    int64_t number;
    void *pointer;
  } value;
} argument;

typedef struct {
  void *data;
  int32_t device_type, device_id, rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t offset;
} tensor;

typedef int packed_function(void *self, const argument *arguments, int32_t count, argument *result);

/* What is known of an input. bytes: of a sample. state: its number, -1 for none. lo, hi: its range, of integers. */
typedef struct {
  uint8_t code, bits;
  int32_t rank;
  int64_t shape[MOST_AXES];
  size_t bytes;
  int state;
  int64_t lo, hi;
  bool is_checked;
} input_facts;

/* Of an output. offset: in the memory of all outputs. constant: what it always is, or NULL. bytes: of a sample, or of
 * all where it has no batch. */
typedef struct {
  size_t offset;
  const void *constant;
  size_t bytes;
  bool has_batch;
  int state;
} output_facts;

/* Of a state. bytes: of a sample. first: what one holds in the first call, or as many bytes of it as are repeated.
 * is_in_place: whether the function changes it where it gives it, at `offset` in the memory of all outputs. */
typedef struct {
  size_t bytes;
  const unsigned char *first;
  size_t first_bytes;
  bool is_in_place;
  size_t offset;
} state_facts;

typedef struct {
  packed_function *call;
  int input_count, output_count, state_count;
  const input_facts *inputs;
  const output_facts *outputs;
  const state_facts *states;
  size_t workspace_bytes, output_bytes;
} function_facts;

/* The threads of the instance that this thread is running. */
static __thread thread_pool *current_pool;

static int launch(part_function *run, void *data, int count) {
  return current_pool == NULL ? run_alone(run, data, count) : run_shared(current_pool, run, data, count);
}

/* -- What kernels call ------------------------------------------------------------------------------------------- */

static int no_barrier(int part, part_group *group) {
  (void)part, (void)group;
  return -1;
}

static void *allocate_workspace(int device, int id, uint64_t size, int code, int bits) {
  void *memory = NULL;
  (void)device, (void)id, (void)code, (void)bits;
  return posix_memalign(&memory, ALIGNMENT, size ? (size_t)size : 1) == 0 ? memory : NULL;
}

static int free_workspace(int device, int id, void *memory) {
  (void)device, (void)id;
  free(memory);
  return 0;
}

static int no_function(void) { return -1; }

static void no_message(const char *kind, const char *message) { (void)kind, (void)message; }

/* Object files hold these pointers without a value, for TVM's runtime to fill in. */
int (*__TVMBackendParallelLaunch)(part_function *, void *, int) = launch;
int (*__TVMBackendParallelBarrier)(int, part_group *) = no_barrier;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate_workspace;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = free_workspace;
int (*__TVMFFIFunctionCall)(void) = no_function;
int (*__TVMFFIEnvModLookupFromImports)(void) = no_function;
int (*__TVMFFIHandleInitOnce)(void) = no_function;
void (*__TVMFFIErrorSetRaisedFromCStr)(const char *, const char *) = no_message;

/* -- An instance ------------------------------------------------------------------------------------------------- */

enum { FUNCTIONS = 2 };

typedef struct {
  thread_pool pool;
  unsigned char *workspace, *staging;
  unsigned char *outputs[FUNCTIONS]; /* one memory, unless states stay in it */
  unsigned char **states[FUNCTIONS];
} instance_type;

/* The functions of integers and of real values, and the constants of both. */
static const function_facts functions[FUNCTIONS];
extern const unsigned char mrt_constants[];
static const int64_t batch = BATCH;

/* Whether this process gets the registers that kernels use. */
static bool has_registers(void) {
#if NEEDS_TILES
  return syscall(158, 0x1023, 18) == 0; /* arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) */
#else
  return true;
#endif
}

static size_t rounded_up(size_t size) { return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static unsigned char *allocate(size_t size) {
  void *memory = NULL;
  bool is_large = size >= LARGE_PAGE;
  if (posix_memalign(&memory, is_large ? LARGE_PAGE : ALIGNMENT, size ? size : ALIGNMENT) != 0) return NULL;
#ifdef MADV_HUGEPAGE
  if (is_large) (void)madvise(memory, size, MADV_HUGEPAGE);
#endif
  return memory;
}

/* The bytes of all inputs of one call. */
static size_t staging_bytes(const function_facts *function) {
  size_t total = 0;
  for (int i = 0; i < function->input_count; ++i) total += rounded_up(function->inputs[i].bytes * (size_t)batch);
  return total;
}

/* Whether a state of any function stays in the memory of its outputs. */
static bool keeps_outputs(void) {
  for (int f = 0; f < FUNCTIONS; ++f)
    for (int i = 0; i < functions[f].state_count; ++i)
      if (functions[f].states[i].is_in_place) return true;
  return false;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static void reset(instance_type *self) {
  for (int f = 0; f < FUNCTIONS; ++f) {
    for (int i = 0; i < functions[f].state_count; ++i) {
      const state_facts *state = &functions[f].states[i];
      for (size_t at = 0; at < state->bytes * (size_t)batch; at += state->first_bytes)
        memcpy(self->states[f][i] + at, state->first, state->first_bytes);
    }
  }
}

static void destroy(instance_type *self) {
  if (self == NULL) return;
  stop_pool(&self->pool);
  for (int f = 0; f < FUNCTIONS; ++f) {
    for (int i = 0; self->states[f] != NULL && i < functions[f].state_count; ++i)
      if (!functions[f].states[i].is_in_place) free(self->states[f][i]);
    free(self->states[f]);
  }
  free(self->workspace);
  if (self->outputs[1] != self->outputs[0]) free(self->outputs[1]);
  free(self->outputs[0]);
  free(self->staging);
  free(self);
}

static bool allocate_states(instance_type *self) {
  for (int f = 0; f < FUNCTIONS; ++f) {
    size_t count = (size_t)functions[f].state_count;
    self->states[f] = calloc(count ? count : 1, sizeof *self->states[f]);
    if (self->states[f] == NULL) return false;
    for (size_t i = 0; i < count; ++i) {
      const state_facts *state = &functions[f].states[i];
      unsigned char *place = self->outputs[f] + state->offset;
      self->states[f][i] = state->is_in_place ? place : allocate(state->bytes * (size_t)batch);
      if (self->states[f][i] == NULL) return false;
    }
  }
  return true;
}

static bool allocate_outputs(instance_type *self) {
  size_t integer = functions[0].output_bytes, real = functions[1].output_bytes;
  bool is_apart = keeps_outputs();
  self->outputs[0] = allocate(is_apart ? integer : larger(integer, real));
  self->outputs[1] = is_apart ? allocate(real) : self->outputs[0];
  return self->outputs[0] != NULL && self->outputs[1] != NULL;
}

static instance_type *create(int threads) {
  if (threads < 1 || !has_registers()) return NULL;
  instance_type *self = calloc(1, sizeof *self);
  if (self == NULL) return NULL;
  if (!start_pool(&self->pool, threads, 0)) {
    stop_pool(&self->pool);
    free(self);
    return NULL;
  }
  const function_facts *integer = &functions[0], *real = &functions[1];
  self->workspace = allocate(larger(integer->workspace_bytes, real->workspace_bytes));
  self->staging = allocate(larger(staging_bytes(integer), staging_bytes(real)));
  bool is_whole = self->workspace != NULL && self->staging != NULL && allocate_outputs(self) && allocate_states(self);
  if (!is_whole) {
    destroy(self);
    return NULL;
  }
  reset(self);
  return self;
}

/* -- A call ------------------------------------------------------------------------------------------------------ */

/* What is found is as wide as the elements, so that compilers compare many at once. */
#define HOLDS_OTHERS(type)                                                          \
  do {                                                                              \
    const type *values = data, lo = (type)facts->lo, hi = (type)facts->hi;          \
    type found = 0;                                                                 \
    for (size_t i = 0; i < count; ++i) found |= (values[i] < lo) | (values[i] > hi); \
    return found != 0;                                                              \
  } while (0)

/* Whether an input holds an integer outside of its range, or what is no number. */
static bool is_refused(const input_facts *facts, const void *data, int64_t samples) {
  size_t count = facts->bytes / (facts->bits / 8u) * (size_t)samples;
  if (!facts->is_checked) return false;
  if (facts->code == FLOAT_CODE) {
    const float *values = data;
    int32_t found = 0;
    for (size_t i = 0; i < count; ++i) found |= values[i] != values[i];
    return found != 0;
  }
  if (facts->code == UINT_CODE || facts->code == BOOL_CODE) HOLDS_OTHERS(uint8_t);
  if (facts->bits == 8) HOLDS_OTHERS(int8_t);
  if (facts->bits == 16) HOLDS_OTHERS(int16_t);
  HOLDS_OTHERS(int32_t);
}

/* A number that the network is proven for, where there are no samples. */
static void fill(const input_facts *facts, unsigned char *target, size_t bytes) {
  int64_t value = facts->lo > 0 ? facts->lo : facts->hi < 0 ? facts->hi : 0;
  if (facts->code == FLOAT_CODE) value = 0;
  for (size_t at = 0; at < bytes; at += facts->bits / 8u) {
    int8_t narrow = (int8_t)value;
    int16_t middle = (int16_t)value;
    int32_t wide = (int32_t)value;
    if (facts->bits == 8) memcpy(target + at, &narrow, sizeof narrow);
    if (facts->bits == 16) memcpy(target + at, &middle, sizeof middle);
    if (facts->bits == 32) memcpy(target + at, &wide, sizeof wide);
  }
}

static tensor tensor_of(const void *data, uint8_t code, uint8_t bits, int32_t rank, const int64_t *shape) {
  return (tensor){(void *)data, CPU, 0, rank, code, bits, 1, (int64_t *)shape, NULL, 0};
}

/* Calls a function on samples `start` to `start + count` of the inputs that are no states. */
static int call(instance_type *self, int which, int64_t start, int64_t count, const void *const *given) {
  const function_facts *function = &functions[which];
  tensor tensors[MOST_INPUTS + 3];
  argument arguments[MOST_INPUTS + 3], result = {0, 0, {0}};
  unsigned char *staging = self->staging;
  int total = function->input_count, fed = 0;
  for (int i = 0; i < total; ++i) {
    const input_facts *facts = &function->inputs[i];
    const unsigned char *data = facts->state >= 0 ? self->states[which][facts->state] : given[fed++];
    if (facts->state < 0) data += (size_t)start * facts->bytes;
    if (facts->state < 0 && count < batch) {
      memcpy(staging, data, (size_t)count * facts->bytes);
      fill(facts, staging + (size_t)count * facts->bytes, (size_t)(batch - count) * facts->bytes);
      data = staging;
      staging += rounded_up(facts->bytes * (size_t)batch);
    }
    tensors[i] = tensor_of(data, facts->code, facts->bits, facts->rank, facts->shape);
  }
  const void *memory[3] = {mrt_constants, self->workspace, self->outputs[which]};
  int64_t sizes[3] = {CONSTANT_BYTES, (int64_t)function->workspace_bytes, (int64_t)function->output_bytes};
  for (int i = 0; i < 3; ++i) {
    if (sizes[i] == 0) sizes[i] = 1;
    tensors[total + i] = tensor_of(memory[i], UINT_CODE, 8, 1, &sizes[i]);
  }
  for (int i = 0; i < total + 3; ++i) {
    arguments[i].kind = TENSOR_ARGUMENT;
    arguments[i].padding = 0;
    arguments[i].value.pointer = &tensors[i];
  }
  thread_pool *outer = current_pool;
  current_pool = &self->pool;
  int status = function->call(NULL, arguments, total + 3, &result);
  current_pool = outer;
  return status == 0 ? 0 : KERNEL_FAILED;
}

/* Copies what a call gave: states to where they are kept, the others to the caller. */
static void take(instance_type *self, int which, int64_t start, int64_t count, void *const *wanted) {
  const function_facts *function = &functions[which];
  for (int i = 0, given = 0; i < function->output_count; ++i) {
    const output_facts *facts = &function->outputs[i];
    const unsigned char *source = facts->constant != NULL ? facts->constant : self->outputs[which] + facts->offset;
    if (facts->state >= 0) {
      unsigned char *state = self->states[which][facts->state];
      if (state != source) memcpy(state, source, facts->bytes * (size_t)batch);
      continue;
    }
    unsigned char *target = wanted[given++];
    if (facts->has_batch)
      memcpy(target + (size_t)start * facts->bytes, source, (size_t)count * facts->bytes);
    else
      memcpy(target, source, facts->bytes);
  }
}

static int run(instance_type *self, int which, int64_t samples, const void *const *given, void *const *wanted) {
  const function_facts *function = &functions[which];
  if (samples < 1) return NO_SAMPLES;
  if (function->state_count > 0 && samples != batch) return OTHER_STREAMS;
  for (int i = 0, fed = 0; i < function->input_count; ++i) {
    if (function->inputs[i].state >= 0) continue;
    if (is_refused(&function->inputs[i], given[fed++], samples)) return fed;
  }
  for (int64_t start = 0; start < samples; start += batch) {
    int64_t count = samples - start < batch ? samples - start : batch;
    int status = call(self, which, start, count, given);
    if (status != 0) return status;
    take(self, which, start, count, wanted);
  }
  return 0;
}

/* -- Tables ------------------------------------------------------------------------------------------------------ */
