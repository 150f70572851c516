/* The threads that share the loops of kernels. C99 with the builtins of GNU, and POSIX threads.
 *
 * A loop is divided into more parts than there are threads. Each thread takes the parts of its own share one by one,
 * then what is left of the others' shares: nobody waits for a thread that does not come, only for parts that one has
 * begun. A thread that lost its processor in the middle of one gets no share for a while. */
#ifndef MRT_THREAD_POOL_H
#define MRT_THREAD_POOL_H
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Parts for each thread, and at most of a loop. */
#define PARTS_PER_THREAD 8
#define MOST_PARTS 0xffff
/* Nanoseconds for which a thread looks for a loop before it sleeps, and those for which the caller, beyond the time that
 * it worked itself, looks for the end of parts that others have begun. */
#define LOOK_FOR_WORK 50000
#define LOOK_FOR_END 50000
/* How many times as long as a thread was waited for it gets no share, and nanoseconds for which one gets none that came
 * to the caller's processor, where one of them only hinders the other. */
#define RESTS 2
#define REST_OF_CROWDED 4000000
/* The same where it cannot be started. */
#define REST_OF_MISSING 1000000000
#define LOOKS 32
#define APART_BYTES 128
#define APART __attribute__((aligned(APART_BYTES)))

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define STORE(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELAXED)

/* As TVM's code takes them. */
typedef struct {
  void *handle;
  int32_t count;
} part_group;

typedef int part_function(int part, part_group *group, void *data);

/* A thread; the first one is the caller, who starts those that have ended. parts: a turn, and the first part and the end
 * of those that nobody has taken, in 32, 16 and 16 bits. turn: the last one in which it has a share. seen: the last one
 * before it was started. sleeps, has_ended: see sleep_until_turn. is_at_work: whether it may run parts. is_crowded: whether
 * it came to the caller's processor. The caller knows rests_until, when it gets shares again, and whether the end of a loop
 * is_late by it. */
typedef struct {
  APART uint64_t parts;
  uint32_t turn;
  int32_t sleeps, is_at_work, is_crowded, has_ended;
  uint32_t seen;
  int64_t rests_until;
  bool is_late, is_started;
  pthread_cond_t wake;
  pthread_t thread;
  struct thread_pool *pool;
} member;

/* turn: counts loops. cpu: the caller's processor. pending: parts that are not done. waits: whether the caller sleeps until
 * they are. */
typedef struct thread_pool {
  member *members;
  int threads, idle_seconds;
  uint32_t turn;
  part_function *run;
  void *data;
  int32_t count, cpu, stops;
  pthread_mutex_t mutex;
  pthread_cond_t end;
  APART int32_t pending;
  int32_t waits, failed;
} thread_pool;

int sched_getcpu(void);

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void look_away(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

/* The first or the last part of a share that nobody has taken; -1 where the turn has none. */
static int take_part(member *owner, uint32_t turn, bool is_first) {
  uint64_t seen = __atomic_load_n(&owner->parts, __ATOMIC_ACQUIRE);
  for (;;) {
    int begin = (int)(seen >> 16 & MOST_PARTS), end = (int)(seen & MOST_PARTS);
    if ((uint32_t)(seen >> 32) != turn || begin == end) return -1;
    uint64_t left = is_first ? seen + (1 << 16) : seen - 1;
    if (__atomic_compare_exchange_n(&owner->parts, &seen, left, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return is_first ? begin : end - 1;
  }
}

static bool is_done(thread_pool *pool) { return __atomic_load_n(&pool->pending, __ATOMIC_SEQ_CST) == 0; }

/* Runs parts of a turn until none is left; whether one failed. Where a part of the turn could be taken, what was read of
 * the pool before belongs to it. */
static int run_parts(thread_pool *pool, int place, uint32_t turn) {
  part_function *run = LOAD(pool->run);
  void *data = LOAD(pool->data);
  part_group group = {NULL, LOAD(pool->count)};
  int failed = 0;
  for (int i = 0; i < pool->threads; ++i) {
    int owner = (place + i) % pool->threads, done = 0, part;
    while ((part = take_part(&pool->members[owner], turn, i == 0)) >= 0) {
      failed |= run(part, &group, data) != 0;
      ++done;
    }
    if (done == 0) continue;
    if (failed && place != 0) STORE(pool->failed, 1);
    __atomic_sub_fetch(&pool->pending, done, __ATOMIC_SEQ_CST);
  }
  return failed;
}

/* Whether there was another turn than the one that was seen last, before the thread was idle for too long. */
static bool sleep_until_turn(member *self, uint32_t seen) {
  struct timespec end;
  int status = 0;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += self->pool->idle_seconds;
  pthread_mutex_lock(&self->pool->mutex);
  __atomic_store_n(&self->sleeps, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&self->turn, __ATOMIC_SEQ_CST) == seen && status != ETIMEDOUT) {
    if (self->pool->idle_seconds > 0)
      status = pthread_cond_timedwait(&self->wake, &self->pool->mutex, &end);
    else
      pthread_cond_wait(&self->wake, &self->pool->mutex);
  }
  STORE(self->sleeps, 0);
  bool is_awake = __atomic_load_n(&self->turn, __ATOMIC_SEQ_CST) != seen;
  pthread_mutex_unlock(&self->pool->mutex);
  return is_awake;
}

/* Whether there is another turn than *seen, which becomes it; else the thread ends. */
static bool next_turn(member *self, uint32_t *seen) {
  for (int64_t begin = nanoseconds(); nanoseconds() - begin < LOOK_FOR_WORK;) {
    for (int looks = 0; looks < LOOKS; ++looks) {
      uint32_t turn = __atomic_load_n(&self->turn, __ATOMIC_ACQUIRE);
      if (turn != *seen) {
        *seen = turn;
        return true;
      }
      look_away();
    }
    if (LOAD(self->pool->cpu) == sched_getcpu()) break;
  }
  if (!sleep_until_turn(self, *seen)) return false;
  *seen = __atomic_load_n(&self->turn, __ATOMIC_ACQUIRE);
  return true;
}

static void *work(void *given) {
  member *self = given;
  thread_pool *pool = self->pool;
  uint32_t turn = self->seen;
  while (next_turn(self, &turn) && !LOAD(pool->stops)) {
    if (LOAD(pool->cpu) == sched_getcpu()) {
      STORE(self->is_crowded, 1);
      continue;
    }
    STORE(self->is_at_work, 1);
    run_parts(pool, (int)(self - pool->members), turn);
    STORE(self->is_at_work, 0);
    if (is_done(pool) && __atomic_load_n(&pool->waits, __ATOMIC_SEQ_CST)) {
      pthread_mutex_lock(&pool->mutex);
      pthread_cond_signal(&pool->end);
      pthread_mutex_unlock(&pool->mutex);
    }
  }
  STORE(self->has_ended, 1);
  return NULL;
}

/* Whether the thread was started. */
static bool start_member(member *self) {
  self->seen = self->turn;
  STORE(self->has_ended, 0);
  self->is_started = pthread_create(&self->thread, NULL, work, self) == 0;
  if (!self->is_started) STORE(self->has_ended, 1);
  return self->is_started;
}

static void join_member(member *self) {
  if (self->is_started) pthread_join(self->thread, NULL);
  self->is_started = false;
}

static void stop_pool(thread_pool *pool) {
  STORE(pool->stops, 1);
  for (int i = 1; i < pool->threads; ++i) {
    member *each = &pool->members[i];
    pthread_mutex_lock(&pool->mutex);
    __atomic_store_n(&each->turn, pool->turn + 1, __ATOMIC_RELEASE);
    pthread_cond_signal(&each->wake);
    pthread_mutex_unlock(&pool->mutex);
    join_member(each);
    pthread_cond_destroy(&each->wake);
  }
  free(pool->members);
  pthread_cond_destroy(&pool->end);
  pthread_mutex_destroy(&pool->mutex);
}

/* Starts all threads but the caller's. Whether all were started; those that were are in the pool. idle_seconds: after
 * which a thread ends until there is work for it; 0 for never. */
static bool start_pool(thread_pool *pool, int threads, int idle_seconds) {
  void *members = NULL;
  *pool = (thread_pool){.threads = 1, .idle_seconds = idle_seconds};
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->end, NULL);
  if (posix_memalign(&members, APART_BYTES, (size_t)threads * sizeof(member)) != 0) return false;
  pool->members = members;
  for (int i = 0; i < threads; ++i) pool->members[i] = (member){.pool = pool};
  for (int i = 1; i < threads; ++i) {
    member *each = &pool->members[i];
    pthread_cond_init(&each->wake, NULL);
    if (!start_member(each)) {
      pthread_cond_destroy(&each->wake);
      return false;
    }
    pool->threads = i + 1;
  }
  return true;
}

/* The caller runs all parts. */
static int run_alone(part_function *run, void *data, int count) {
  part_group group = {NULL, count > 0 ? count : 1};
  int failed = 0;
  for (int part = 0; part < group.count; ++part) failed |= run(part, &group, data) != 0;
  return failed ? -1 : 0;
}

/* Gives the parts of the next turn to `members` threads, those that do not rest, and wakes them. */
static void share_parts(thread_pool *pool, int members, int64_t now) {
  uint32_t turn = ++pool->turn;
  int count = pool->count, given = 0;
  STORE(pool->failed, 0);
  STORE(pool->pending, count);
  for (int i = 0; i < pool->threads; ++i) {
    if (pool->members[i].rests_until > now) continue;
    uint64_t begin = (uint64_t)(count * given / members), end = (uint64_t)(count * (given + 1) / members);
    __atomic_store_n(&pool->members[i].parts, (uint64_t)turn << 32 | begin << 16 | end, __ATOMIC_RELEASE);
    ++given;
  }
  for (int i = 1; i < pool->threads; ++i) {
    member *each = &pool->members[i];
    if (each->rests_until > now) continue;
    __atomic_store_n(&each->turn, turn, __ATOMIC_SEQ_CST);
    /* Where a thread that is about to sleep holds the mutex, it may miss this turn: others run its parts. */
    if (__atomic_load_n(&each->sleeps, __ATOMIC_SEQ_CST) && pthread_mutex_trylock(&pool->mutex) == 0) {
      pthread_cond_signal(&each->wake);
      pthread_mutex_unlock(&pool->mutex);
    }
  }
}

/* Waits for parts that others have begun, and has those rest that take much longer than the caller worked. */
static void await_end(thread_pool *pool, int64_t begin) {
  int64_t waits = nanoseconds(), patience = LOOK_FOR_END + waits - begin;
  do {
    for (int looks = 0; looks < LOOKS; ++looks) {
      if (is_done(pool)) return;
      look_away();
    }
  } while (nanoseconds() - waits < patience);
  for (int i = 1; i < pool->threads; ++i) pool->members[i].is_late = LOAD(pool->members[i].is_at_work);
  pthread_mutex_lock(&pool->mutex);
  __atomic_store_n(&pool->waits, 1, __ATOMIC_SEQ_CST);
  while (!is_done(pool)) pthread_cond_wait(&pool->end, &pool->mutex);
  STORE(pool->waits, 0);
  pthread_mutex_unlock(&pool->mutex);
  int64_t now = nanoseconds();
  for (int i = 1; i < pool->threads; ++i)
    if (pool->members[i].is_late) pool->members[i].rests_until = now + RESTS * (now - waits);
}

/* How many threads get shares; those of them that have ended are started. */
static int members_at(thread_pool *pool, int64_t now) {
  int members = 1;
  for (int i = 1; i < pool->threads; ++i) {
    member *each = &pool->members[i];
    if (LOAD(each->is_crowded)) {
      STORE(each->is_crowded, 0);
      each->rests_until = now + REST_OF_CROWDED;
    }
    if (each->rests_until <= now && LOAD(each->has_ended)) {
      join_member(each);
      if (!start_member(each)) each->rests_until = now + REST_OF_MISSING;
    }
    members += each->rests_until <= now;
  }
  return members;
}

/* Runs `count` parts of a kernel, or as many as are best where that is 0. One caller at a time. */
static int run_shared(thread_pool *pool, part_function *run, void *data, int count) {
  int64_t begin = pool->threads > 1 ? nanoseconds() : 0;
  int members = members_at(pool, begin);
  if (members == 1 || count == 1 || count > MOST_PARTS) return run_alone(run, data, count);
  if (count == 0) count = members < MOST_PARTS / PARTS_PER_THREAD ? PARTS_PER_THREAD * members : MOST_PARTS;
  STORE(pool->cpu, sched_getcpu());
  STORE(pool->run, run);
  STORE(pool->data, data);
  STORE(pool->count, count);
  share_parts(pool, members, begin);
  int failed = run_parts(pool, 0, pool->turn);
  if (!is_done(pool)) await_end(pool, begin);
  return failed || LOAD(pool->failed) ? -1 : 0;
}
#endif
