/* The threads of a module: one pool, which its first call starts. Where it is taken, whoever calls runs all parts. */
#include "thread_pool.h"
#include <unistd.h>

#define MOST_THREADS 1024
/* TVM's runtime keeps each library that it has loaded, so that threads must end by themselves. */
#ifndef IDLE_SECONDS
#define IDLE_SECONDS 1
#endif

static thread_pool pool;
static bool is_started, is_handled;
static int32_t is_taken;

/* Kernels call this pointer. Where it is seen from outside, TVM's runtime sets it to threads of its own. */
extern int (*__TVMBackendParallelLaunch)(part_function *, void *, int) __attribute__((visibility("hidden")));
/* Set by TVM's runtime, where a kernel refers to it. */
extern void (*__TVMFFIErrorSetRaisedFromCStr)(const char *, const char *) __attribute__((weak));

/* As TVM's runtime chooses: what TVM_NUM_THREADS or OMP_NUM_THREADS say, else the logical cores, on x86 half of them. */
static int thread_count(void) {
  const char *stated = getenv("TVM_NUM_THREADS");
  if (stated == NULL) stated = getenv("OMP_NUM_THREADS");
  long count = stated != NULL ? strtol(stated, NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN);
#if defined(__x86_64__) || defined(__i386__)
  if (stated == NULL) count /= 2;
#endif
  return count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : (int)count;
}

/* A process that was forked has none of the threads. */
static void forget(void) {
  is_started = false;
  is_taken = 0;
}

/* Those threads that cannot be started are done without. */
static void start(void) {
  if (!is_handled) pthread_atfork(NULL, NULL, forget);
  is_handled = is_started = true;
  start_pool(&pool, thread_count(), IDLE_SECONDS);
}

/* Before the code is unloaded. Where the process ends while another thread calls, its threads end with it. */
__attribute__((destructor)) static void stop(void) {
  if (!__atomic_exchange_n(&is_taken, 1, __ATOMIC_ACQUIRE) && is_started) stop_pool(&pool);
}

static int launch(part_function *run, void *data, int count) {
  int status;
  if (__atomic_exchange_n(&is_taken, 1, __ATOMIC_ACQUIRE)) {
    status = run_alone(run, data, count);
  } else {
    if (!is_started) start();
    status = run_shared(&pool, run, data, count);
    __atomic_store_n(&is_taken, 0, __ATOMIC_RELEASE);
  }
  /* What a kernel says of its failure, it says in the thread that ran the part. */
  if (status != 0 && &__TVMFFIErrorSetRaisedFromCStr != NULL && __TVMFFIErrorSetRaisedFromCStr != NULL)
    __TVMFFIErrorSetRaisedFromCStr("RuntimeError", "a part of a kernel failed");
  return status;
}

int (*__TVMBackendParallelLaunch)(part_function *, void *, int) = launch;
