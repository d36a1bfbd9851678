// The perceptron in CUDA with fused kernels, a third of the launches of mlp_naive.cu: what a kernel has in registers, the next one
// need not read again.
//
//     nvcc -O3 mlp_fused.cu -o mlp && ./mlp                 also with -DHALF, -DDOUBLE, or -DTF32 -arch=sm_80
//
// With no GPU, on picograd's simulator of one, three steps:
//
//     D=../../../../picograd/devices; c++ -std=c++17 -O2 -ffp-contract=off -fno-strict-aliasing -w -I$D -I$D/cuda \
//       -x c++ mlp_fused.cu -o mlp && ./mlp mnist_small.bin 0 3
//
// Bias and relu are part of the first product; softmax, loss and their gradient are one pass over a row of logits; relu's gradient is
// part of the product before it; weights are updated where their gradient is computed, which is never in memory. With -DHALF the
// images, the hidden layer and the gradients that products read have half precision: half the bytes, and sums in float32. With -DDOUBLE
// there are two buffers for batches, and the next batch is copied while the kernels of this one run. With -DTF32 tensor cores compute the
// hidden layer and the gradients of weights.
#include "gpu.h"
#ifdef TF32
#include "tensor_cores.h"
#endif

#define THREAD (int)(blockIdx.x * blockDim.x + threadIdx.x)
#ifdef HALF
typedef Half Narrow;
#else
typedef float Narrow;
#endif
#ifdef DOUBLE
enum { BUFFERS = 2 };
#define to_batch start_copy
#else
enum { BUFFERS = 1 };
#define to_batch to_device
#endif
typedef Global<float> Out;
typedef Global<const float> In;
typedef Global<Narrow> NarrowOut;
typedef Global<const Narrow> NarrowIn;
typedef Global<const int32_t> Labels;

// ---- forward ----
// h (rows, columns) = max(x (rows, depth) @ w (depth, columns) + b (columns), 0)
#ifdef TF32
__global__ void linear_relu(NarrowOut h, NarrowIn x, In w, In b, int rows, int depth, int columns) {
  warp_product(
      THREAD, depth, columns, [&](int r, int k) { return r < rows && k < depth ? widened(x[r * depth + k]) : 0.0f; },
      [&](int k, int c) { return k < depth && c < columns ? widened(w[k * columns + c]) : 0.0f; },
      [&](int r, int c, float sum) {
        if (r < rows && c < columns) h[r * columns + c] = narrowed<Narrow>(sum + b[c] > 0 ? sum + b[c] : 0);
      });
}
#else
__global__ void linear_relu(NarrowOut h, NarrowIn x, In w, In b, int rows, int depth, int columns) {
  const int i = THREAD, r = i / columns, c = i % columns;
  if (i >= rows * columns) return;
  float sum = 0;
  for (int k = 0; k < depth; k++) sum += widened(x[r * depth + k]) * w[k * columns + c];
  sum += b[c];
  h[i] = narrowed<Narrow>(sum > 0 ? sum : 0);
}
#endif

__global__ void linear(Out out, NarrowIn in, In w, In b, int rows, int depth, int columns) {
  const int i = THREAD, r = i / columns, c = i % columns;
  if (i >= rows * columns) return;
  float sum = 0;
  for (int k = 0; k < depth; k++) sum += widened(in[r * depth + k]) * w[k * columns + c];
  out[i] = sum + b[c];
}

// ---- loss, and its gradient: d(loss) / d(logits) = (softmax(logits) - one hot) / rows ----
__global__ void softmax_loss(Out losses, Out dlogits, In logits, Labels label, int rows, int columns) {
  const int r = THREAD;
  if (r >= rows) return;
  float largest = logits[r * columns], sum = 0;
  for (int v = 1; v < columns; v++) largest = logits[r * columns + v] > largest ? logits[r * columns + v] : largest;
  for (int v = 0; v < columns; v++) sum += expf(logits[r * columns + v] - largest);
  for (int v = 0; v < columns; v++)
    dlogits[r * columns + v] = (expf(logits[r * columns + v] - largest) / sum - (v == label[r])) / rows;
  losses[r] = logf(sum) + largest - logits[r * columns + label[r]];
}

// ---- backward and update ----
// dz (rows, depth) = dout (rows, columns) @ w (depth, columns) transposed, where h > 0; `rows` times as large, so that half
// precision can hold it
__global__ void hidden_gradient(NarrowOut dz, In dout, In w, NarrowIn h, int rows, int depth, int columns) {
  const int i = THREAD, r = i / depth, k = i % depth;
  if (i >= rows * depth) return;
  float sum = 0;
  for (int c = 0; c < columns; c++) sum += dout[r * columns + c] * w[k * columns + c];
  dz[i] = narrowed<Narrow>(widened(h[i]) > 0 ? rows * sum : 0);
}

// w -= LEARNING_RATE / divisor * in (rows, depth) transposed @ dout (rows, columns): a thread for each weight, behind them one for each bias
#ifdef TF32
template <class T>
__global__ void update(Out w, Out b, NarrowIn in, Global<const T> dout, int divisor, int rows, int depth, int columns) {
  warp_product(
      THREAD, rows, columns, [&](int k, int r) { return k < depth && r < rows ? widened(in[r * depth + k]) : 0.0f; },
      [&](int r, int c) { return r < rows && c < columns ? widened(dout[r * columns + c]) : 0.0f; },
      [&](int k, int c, float sum) {
        if (k > depth || c >= columns) return;
        if (k < depth) w[k * columns + c] = w[k * columns + c] - LEARNING_RATE * sum / divisor;
        if (k < depth) return;
        for (int r = 0; r < rows; r++) sum += widened(dout[r * columns + c]);  // of a bias, in float32
        b[c] = b[c] - LEARNING_RATE * sum / divisor;
      });
}
#else
template <class T>
__global__ void update(Out w, Out b, NarrowIn in, Global<const T> dout, int divisor, int rows, int depth, int columns) {
  const int i = THREAD, k = i / columns, c = i % columns;
  if (k > depth) return;
  float sum = 0;
  for (int r = 0; r < rows; r++) sum += (k < depth ? widened(in[r * depth + k]) : 1) * widened(dout[r * columns + c]);
  if (k < depth) w[i] = w[i] - LEARNING_RATE * sum / divisor;
  else b[c] = b[c] - LEARNING_RATE * sum / divisor;
}
static int warps_of(int rows, int columns) { return rows * columns; }
#endif

static float *on_device(const float *array, size_t count) {
  float *memory = device_memory<float>(count);
  to_device(memory, array, count);
  return memory;
}

static Narrow *narrowed_copy(const float *array, size_t count) {
  Narrow *copy = (Narrow *)allocate(sizeof(Narrow) * count);
  for (size_t i = 0; i < count; i++) copy[i] = narrowed<Narrow>(array[i]);
  return copy;
}

static void dump_narrow(const char *name, const char *kernel, const Narrow *tensor, int rows, int columns, float divisor) {
  const int count = rows * columns;
  Narrow *copy = (Narrow *)allocate(sizeof(Narrow) * count);
  float *wide = (float *)allocate(sizeof(float) * count);
  to_host(copy, tensor, count);
  for (int i = 0; i < count; i++) wide[i] = widened(copy[i]) / divisor;
  dump(name, kernel, wide, rows, columns);
  free(copy);
  free(wide);
}

int main(int count, char **words) {
  skip();
  read_problem(count, words);
  const int DH = inputs * hidden, HV = hidden * outputs, BD = batch * inputs, BH = batch * hidden, BV = batch * outputs;
  const Narrow *pictures = narrowed_copy(images, (size_t)(num_train + num_test) * inputs);
  if (BUFFERS > 1) pin(pictures, (size_t)(num_train + num_test) * inputs), pin(labels, num_train + num_test);
  float *w1 = on_device(start_w1, DH), *b1 = on_device(start_b1, hidden);
  float *w2 = on_device(start_w2, HV), *b2 = on_device(start_b2, outputs);
  Narrow *h = device_memory<Narrow>(BH), *dz1 = device_memory<Narrow>(BH);
  float *logits = device_memory<float>(BV), *dlogits = device_memory<float>(BV), *losses = device_memory<float>(batch);
  float *host_losses = (float *)allocate(sizeof(float) * batch);
  Narrow *pictures_of[BUFFERS];
  int32_t *labels_of[BUFFERS];
  for (int i = 0; i < BUFFERS; i++) pictures_of[i] = device_memory<Narrow>(BD), labels_of[i] = device_memory<int32_t>(batch);
  const auto copy_batch = [&](int buffer, int number) {
    Narrow *x = pictures_of[buffer];
    to_batch(x, pictures + (size_t)number * BD, BD);
    to_batch(labels_of[buffer], labels + number * batch, batch);
  };
  tick_device(LOAD);

  for (int epoch = 1; epoch <= epochs || epoch == 1; epoch++) {
    double sum = 0;
    int number = 0;
    for (; is_step(number); number++, step++) {
      const int now = step % BUFFERS;
      if (BUFFERS == 1 || step == 0) copy_batch(now, number);
      if (BUFFERS == 2) {  // kernels wait for this batch, the next batch for the kernels that have read the one before
        wait_for_copies();
        wait_for_kernels();
        copy_batch(1 - now, number + 1 < num_train / batch ? number + 1 : 0);
      }
      Narrow *x = pictures_of[now];
      int32_t *label = labels_of[now];
      tick_device(COPY);

      LAUNCH(linear_relu, warps_of(batch, hidden))(h, x, w1, b1, batch, inputs, hidden);
      LAUNCH(linear, BV)(logits, h, w2, b2, batch, hidden, outputs);
      tick_device(FORWARD);

      LAUNCH(softmax_loss, batch)(losses, dlogits, logits, label, batch, outputs);
      to_host(host_losses, losses, batch);
      float loss = 0;
      for (int r = 0; r < batch; r++) loss += host_losses[r] / batch;
      sum += loss;
      tick_device(LOSS);

      LAUNCH(hidden_gradient, BH)(dz1, dlogits, w2, h, batch, hidden, outputs);
      tick_device(BACKWARD);

      LAUNCH(update<float>, warps_of(hidden + 1, outputs))(w2, b2, h, dlogits, 1, batch, hidden, outputs);
      LAUNCH(update<Narrow>, warps_of(inputs + 1, hidden))(w1, b1, x, dz1, batch, batch, inputs, hidden);
      tick_device(UPDATE);

      if (is_shown()) {
        dump_narrow("x", "to_device", x, batch, inputs, 1);
        dump_narrow("h", "linear_relu", h, batch, hidden, 1);
        dump_device("logits", "linear", logits, batch, outputs);
        dump("loss", "softmax_loss", &loss, 1, 1);
        dump_device("dlogits", "softmax_loss", dlogits, batch, outputs);
        dump_narrow("dz1", "hidden_gradient", dz1, batch, hidden, batch);
        dump_device("w1", "update", w1, inputs, hidden);
        dump_device("b1", "update", b1, 1, hidden);
        dump_device("w2", "update", w2, hidden, outputs);
        dump_device("b2", "update", b2, 1, outputs);
        printf("step %d loss %.9g\n", step + 1, loss);
      }
      skip();
    }
    if (epochs) printf("epoch %d loss %.9g\n", epoch, sum / (number ? number : 1));
  }

  float *host_logits = (float *)allocate(sizeof(float) * BV);
  Narrow *x = pictures_of[0];
  wait_for_copies();
  int right = 0;
  for (int r = num_train; epochs && r < num_train + num_test; r += batch) {  // after a few steps there is nothing to test
    const int rows = r + batch <= num_train + num_test ? batch : num_train + num_test - r;
    to_device(x, pictures + (size_t)r * inputs, (size_t)rows * inputs);
    LAUNCH(linear_relu, warps_of(rows, hidden))(h, x, w1, b1, rows, inputs, hidden);
    LAUNCH(linear, rows * outputs)(logits, h, w2, b2, rows, hidden, outputs);
    to_host(host_logits, logits, (size_t)rows * outputs);
    right += count_right(host_logits, labels + r, rows);
  }
  to_host(start_w1, w1, DH);
  to_host(start_b1, b1, hidden);
  to_host(start_w2, w2, HV);
  to_host(start_b2, b2, outputs);
  report(right, start_w1, start_b1, start_w2, start_b2);
  return 0;
}
