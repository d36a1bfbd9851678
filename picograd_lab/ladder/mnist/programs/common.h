// The parts that all rungs in C and CUDA share: the command, the file of prepare.py, timers and the report. common.py is the same in
// Python, and says what the command takes and what the file of a dump is.
#ifndef COMMON_H
#define COMMON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOAD, COPY, FORWARD, LOSS, BACKWARD, UPDATE, NUM_PHASES };
static const char *const PHASES[] = {"load", "copy", "forward", "loss", "backward", "update"};
static const float LEARNING_RATE = 0.01f;

// ---- memory and files ----
static void *allocate(size_t nbytes) {
  void *memory = malloc(nbytes ? nbytes : 1);
  if (memory) return memory;
  fprintf(stderr, "no memory for %zu bytes\n", nbytes);
  exit(1);
}

static void *read_array(FILE *file, size_t count) {  // float or int32_t: both have 4 bytes
  void *array = allocate(4 * count);
  if (fread(array, 4, count, file) == count) return array;
  fprintf(stderr, "the file of prepare.py is too short\n");
  exit(1);
}

// ---- the problem ----
static int32_t inputs, hidden, outputs, batch, num_train, num_test;
static float *start_w1, *start_b1, *start_w2, *start_b2, *images;
static int32_t *labels;
static int epochs, steps, step;
static FILE *dump_file;

static void read_problem(int count, char **words) {
  const char *path = count > 1 ? words[1] : "mnist_small.bin";
  epochs = count > 2 ? atoi(words[2]) : 10;
  steps = count > 3 ? atoi(words[3]) : 0;
  dump_file = count > 4 ? fopen(words[4], "wb") : NULL;
  FILE *file = fopen(path, "rb");
  if (!file || (count > 4 && !dump_file)) {
    perror(file ? words[4] : path);
    exit(1);
  }
  int32_t *sizes = (int32_t *)read_array(file, 6);
  inputs = sizes[0], hidden = sizes[1], outputs = sizes[2], batch = sizes[3], num_train = sizes[4], num_test = sizes[5];
  start_w1 = (float *)read_array(file, (size_t)inputs * hidden);
  start_b1 = (float *)read_array(file, hidden);
  start_w2 = (float *)read_array(file, (size_t)hidden * outputs);
  start_b2 = (float *)read_array(file, outputs);
  images = (float *)read_array(file, (size_t)(num_train + num_test) * inputs);
  labels = (int32_t *)read_array(file, num_train + num_test);
  fclose(file);
  free(sizes);
}

// The first steps are shown: their losses are printed and their tensors dumped.
static int is_shown(void) { return step < steps; }

// Is there a batch `number` in this epoch? Of no epoch there are the steps that are shown.
static int is_step(int number) { return number < num_train / batch && (epochs || is_shown()); }

// Writes a tensor of this step, if that was asked for: "step name kernel rows columns", then float32.
static void dump(const char *name, const char *kernel, const float *tensor, int rows, int columns) {
  if (!dump_file || !is_shown()) return;
  fprintf(dump_file, "%d %s %s %d %d\n", step, name, kernel, rows, columns);
  fwrite(tensor, sizeof(float), (size_t)rows * columns, dump_file);
}

// ---- timers: a phase lasts from the tick before to its own; what is skipped counts to none ----
static double spent[NUM_PHASES], last_tick;
static double now(void) {
  struct timespec time;
  timespec_get(&time, TIME_UTC);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
static void skip(void) { last_tick = now(); }
static void tick(int phase) {
  const double time = now();
  spent[phase] += time - last_tick;
  last_tick = time;
}

// ---- the report ----
static uint32_t crc = 0xffffffffu;
static void add_to_crc(const float *array, size_t count) {
  const unsigned char *bytes = (const unsigned char *)array;
  for (size_t i = 0; i < count * sizeof(float); i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
}
static void report(int right, const float *w1, const float *b1, const float *w2, const float *b2) {
  add_to_crc(w1, (size_t)inputs * hidden);
  add_to_crc(b1, hidden);
  add_to_crc(w2, (size_t)hidden * outputs);
  add_to_crc(b2, outputs);
  if (epochs) printf("test accuracy %.2f %%\n", 100.0 * right / (num_test ? num_test : 1));
  printf("weights %08x\nseconds", crc ^ 0xffffffffu);
  for (int phase = 0; phase < NUM_PHASES; phase++) printf(" %s %.6f", PHASES[phase], spent[phase]);
  printf("\n");
}

// Row by row: does the largest logit have the label?
static int count_right(const float *logits, const int32_t *wanted, int rows) {
  int right = 0;
  for (int r = 0; r < rows; r++) {
    int best = 0;
    for (int v = 1; v < outputs; v++)
      if (logits[r * outputs + v] > logits[r * outputs + best]) best = v;
    right += best == wanted[r];
  }
  return right;
}

#endif
