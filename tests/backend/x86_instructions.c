/* Instructions of x86 that not every CPU has, as Intel's manual (Software Developer's Manual, volume 2) defines them.

   Each function is called as LLVM calls the instruction, with _ for each dot, and does what it does: vectors are
   pointers, the last one to the result. So code that was made for a CPU can be run on one that lacks its instructions. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t held(int32_t value, int32_t low, int32_t high) {
  return value < low ? low : value > high ? high : value;
}

/* Sums of products: of four bytes, of two words. They wrap around. */

#define DOTS(NAME, LANES, EACH, DATA, WEIGHT)                                                           \
  void NAME(const int32_t *sums, const DATA *data, const WEIGHT *weights, int32_t *result) {            \
    for (int i = 0; i < LANES; ++i) {                                                                   \
      uint32_t sum = sums[i];                                                                           \
      for (int j = EACH * i; j < EACH * (i + 1); ++j) sum += data[j] * weights[j];                      \
      result[i] = sum;                                                                                  \
    }                                                                                                   \
  }
DOTS(avx512_vpdpbusd_256, 8, 4, uint8_t, int8_t)
DOTS(avx512_vpdpbusd_512, 16, 4, uint8_t, int8_t)
DOTS(avx512_vpdpwssd_256, 8, 2, int16_t, int16_t)
DOTS(avx512_vpdpwssd_512, 16, 2, int16_t, int16_t)

void avx512_pmaddw_d_512(const int16_t *data, const int16_t *weights, int32_t *result) {
  static const int32_t zeros[16];
  avx512_vpdpwssd_512(zeros, data, weights, result);
}

/* The only one that saturates. */
void avx512_pmaddubs_w_512(const uint8_t *data, const int8_t *weights, int16_t *result) {
  for (int i = 0; i < 64; i += 2)
    result[i / 2] = held(data[i] * weights[i] + data[i + 1] * weights[i + 1], INT16_MIN, INT16_MAX);
}

/* High words of products. */

void avx512_pmulh_w_512(const int16_t *a, const int16_t *b, int16_t *result) {
  for (int i = 0; i < 32; ++i) result[i] = a[i] * b[i] >> 16;
}
void avx512_pmulhu_w_512(const uint16_t *a, const uint16_t *b, uint16_t *result) {
  for (int i = 0; i < 32; ++i) result[i] = (uint32_t)a[i] * b[i] >> 16;
}
void avx512_pmul_hr_sw_512(const int16_t *a, const int16_t *b, int16_t *result) {
  for (int i = 0; i < 32; ++i) result[i] = (a[i] * b[i] + (1 << 14)) >> 15;
}

/* Two vectors of which one of half as long elements is made: in each 16 bytes those of the first, then the second. */

#define PACKED(NAME, FROM, TO, EACH, LOW, HIGH)                                                         \
  void NAME(const FROM *first, const FROM *second, TO *result) {                                        \
    for (int part = 0; part < 4; ++part)                                                                \
      for (int i = 0; i < EACH; ++i) {                                                                  \
        result[2 * EACH * part + i] = held(first[EACH * part + i], LOW, HIGH);                          \
        result[2 * EACH * part + EACH + i] = held(second[EACH * part + i], LOW, HIGH);                  \
      }                                                                                                 \
  }
PACKED(avx512_packsswb_512, int16_t, int8_t, 8, INT8_MIN, INT8_MAX)
PACKED(avx512_packuswb_512, int16_t, uint8_t, 8, 0, UINT8_MAX)
PACKED(avx512_packssdw_512, int32_t, int16_t, 4, INT16_MIN, INT16_MAX)
PACKED(avx512_packusdw_512, int32_t, uint16_t, 4, 0, UINT16_MAX)

/* Look-ups. */

void avx512_pshuf_b_512(const uint8_t *table, const uint8_t *places, uint8_t *result) {
  for (int i = 0; i < 64; ++i) result[i] = places[i] & 128 ? 0 : table[i / 16 * 16 + places[i] % 16];
}
void avx512_permvar_qi_512(const uint8_t *table, const uint8_t *places, uint8_t *result) {
  for (int i = 0; i < 64; ++i) result[i] = table[places[i] % 64];
}

#define OF_TWO_TABLES(NAME, TYPE, LANES)                                                                \
  void NAME(const TYPE *low, const TYPE *places, const TYPE *high, TYPE *result) {                      \
    for (int i = 0; i < LANES; ++i) {                                                                   \
      int place = places[i] % (2 * LANES);                                                              \
      result[i] = place < LANES ? low[place] : high[place - LANES];                                     \
    }                                                                                                   \
  }
OF_TWO_TABLES(avx512_vpermi2var_qi_512, uint8_t, 64)
OF_TWO_TABLES(avx512_vpermi2var_hi_512, uint16_t, 32)
OF_TWO_TABLES(avx512_vpermi2var_d_512, uint32_t, 16)

void avx512_mask_gather_dpi_512(const int32_t *kept, const uint8_t *memory, const int32_t *places,
                                const uint16_t *mask, int32_t scale, int32_t *result) {
  for (int i = 0; i < 16; ++i)
    if (*mask >> i & 1)
      memcpy(result + i, memory + (intptr_t)places[i] * scale, 4);
    else
      result[i] = kept[i];
}

/* AMX: what the CPU refuses ends the process, with the reason. */

struct tile {
  int rows, bytes;
  uint8_t held[16][64];
};
static _Thread_local int is_configured;
static _Thread_local struct tile tiles[8];

static void check(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "tiles: %s\n", what);
  abort();
}
static struct tile *tile(int8_t number) {
  check(is_configured, "no configuration was loaded");
  check(number >= 0 && number < 8 && tiles[number].rows, "a number that the configuration lacks");
  return tiles + number;
}
/* Linux' answer to who asks for tile registers. */
int64_t syscall_(int64_t number, int64_t code, int64_t feature) { return 0; }

void ldtilecfg(const uint8_t *memory) {
  check(memory[0] == 1 && memory[1] == 0, "the palette is not 1, or there is a row to begin at");
  is_configured = 1;
  for (int i = 0; i < 8; ++i) {
    tiles[i] = (struct tile){memory[48 + i], memory[16 + 2 * i] | memory[17 + 2 * i] << 8};
    check(tiles[i].rows <= 16 && tiles[i].bytes <= 64, "more than 16 rows of 64 bytes");
  }
}
void tilerelease(void) { is_configured = 0; }
void tilezero(int8_t number) {
  struct tile *into = tile(number);
  memset(into->held, 0, sizeof into->held);
}
void tileloadd64(int8_t number, const uint8_t *memory, int64_t stride) {
  tilezero(number);
  for (int row = 0; row < tiles[number].rows; ++row)
    memcpy(tiles[number].held[row], memory + row * stride, tiles[number].bytes);
}
void tilestored64(int8_t number, uint8_t *memory, int64_t stride) {
  const struct tile *from = tile(number);
  for (int row = 0; row < from->rows; ++row) memcpy(memory + row * stride, from->held[row], from->bytes);
}
void tdpbusd(int8_t sums, int8_t data, int8_t weights) {
  struct tile *into = tile(sums), *a = tile(data), *b = tile(weights);
  check(into != a && a != b && into != b, "one of them twice");
  check(into->rows == a->rows && into->bytes == b->bytes && a->bytes == 4 * b->rows, "lengths that do not fit");
  for (int row = 0; row < into->rows; ++row)
    for (int column = 0; column < into->bytes; column += 4) {
      uint32_t sum;
      memcpy(&sum, into->held[row] + column, 4);
      for (int k = 0; k < a->bytes; ++k) sum += a->held[row][k] * (int8_t)b->held[k / 4][column + k % 4];
      memcpy(into->held[row] + column, &sum, 4);
    }
}
