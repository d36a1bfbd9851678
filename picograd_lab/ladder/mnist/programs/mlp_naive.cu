// The perceptron in naive CUDA: the functions of mlp.c, with a thread for each element of a result.
//
//     nvcc -O3 -fmad=false mlp_naive.cu -o mlp && ./mlp
// With no GPU, on picograd's simulator of one, three steps:
//
//     D=../../../../picograd/devices; c++ -std=c++17 -O2 -ffp-contract=off -fno-strict-aliasing -w -I$D -I$D/cuda \
//       -x c++ mlp_naive.cu -o mlp && ./mlp mnist_small.bin 0 3
//
// Every sum is in the order of mlp.c, so that the simulator's results have its bits.
#include "gpu.h"

#define THREAD (int)(blockIdx.x * blockDim.x + threadIdx.x)
typedef Global<float> Out;
typedef Global<const float> In;
typedef Global<const int32_t> Labels;

// ---- forward ----
// out (rows, columns) = in (rows, depth) @ w (depth, columns) + b (columns)
__global__ void linear(Out out, In in, In w, In b, int rows, int depth, int columns) {
  const int i = THREAD, r = i / columns, c = i % columns;
  if (i >= rows * columns) return;
  float sum = 0;
  for (int k = 0; k < depth; k++) sum += in[r * depth + k] * w[k * columns + c];
  out[i] = sum + b[c];
}

__global__ void relu(Out h, In z, int count) {
  const int i = THREAD;
  if (i < count) h[i] = z[i] > 0 ? z[i] : 0;
}

// ---- loss ----
__global__ void softmax(Out p, In logits, int rows, int columns) {
  const int r = THREAD;
  if (r >= rows) return;
  float largest = logits[r * columns], sum = 0;
  for (int v = 1; v < columns; v++) largest = logits[r * columns + v] > largest ? logits[r * columns + v] : largest;
  for (int v = 0; v < columns; v++) {
    p[r * columns + v] = expf(logits[r * columns + v] - largest);
    sum += p[r * columns + v];
  }
  for (int v = 0; v < columns; v++) p[r * columns + v] = p[r * columns + v] / sum;
}

__global__ void cross_entropy(Out loss, In p, Labels label, int rows, int columns) {
  if (THREAD > 0) return;
  float sum = 0;
  for (int r = 0; r < rows; r++) sum -= logf(p[r * columns + label[r]]);
  loss[0] = sum / rows;
}

// ---- backward ----
// d(loss) / d(logits) = (p - one hot) / rows
__global__ void loss_gradient(Out dlogits, In p, Labels label, int rows, int columns) {
  const int i = THREAD;
  if (i < rows * columns) dlogits[i] = (p[i] - (i % columns == label[i / columns])) / rows;
}

// dw (depth, columns) = in (rows, depth) transposed @ dout (rows, columns)
__global__ void weight_gradient(Out dw, In in, In dout, int rows, int depth, int columns) {
  const int i = THREAD, k = i / columns, c = i % columns;
  if (i >= depth * columns) return;
  float sum = 0;
  for (int r = 0; r < rows; r++) sum += in[r * depth + k] * dout[r * columns + c];
  dw[i] = sum;
}

__global__ void bias_gradient(Out db, In dout, int rows, int columns) {
  const int c = THREAD;
  if (c >= columns) return;
  float sum = 0;
  for (int r = 0; r < rows; r++) sum += dout[r * columns + c];
  db[c] = sum;
}

// din (rows, depth) = dout (rows, columns) @ w (depth, columns) transposed
__global__ void input_gradient(Out din, In dout, In w, int rows, int depth, int columns) {
  const int i = THREAD, r = i / depth, k = i % depth;
  if (i >= rows * depth) return;
  float sum = 0;
  for (int c = 0; c < columns; c++) sum += dout[r * columns + c] * w[k * columns + c];
  din[i] = sum;
}

__global__ void relu_gradient(Out dz, In dh, In h, int count) {
  const int i = THREAD;
  if (i < count) dz[i] = h[i] > 0 ? dh[i] : 0;
}

// ---- update ----
__global__ void update(Out w, In dw, int count) {
  const int i = THREAD;
  if (i < count) w[i] = w[i] - LEARNING_RATE * dw[i];
}

static float *on_device(const float *array, size_t count) {
  float *memory = device_memory<float>(count);
  to_device(memory, array, count);
  return memory;
}

int main(int count, char **words) {
  skip();
  read_problem(count, words);
  const int DH = inputs * hidden, HV = hidden * outputs, BD = batch * inputs, BH = batch * hidden, BV = batch * outputs;
  float *w1 = on_device(start_w1, DH), *b1 = on_device(start_b1, hidden);
  float *w2 = on_device(start_w2, HV), *b2 = on_device(start_b2, outputs);
  float *x = device_memory<float>(BD), *z1 = device_memory<float>(BH), *h = device_memory<float>(BH);
  float *logits = device_memory<float>(BV), *p = device_memory<float>(BV), *dlogits = device_memory<float>(BV);
  float *loss = device_memory<float>(1), *dw1 = device_memory<float>(DH), *db1 = device_memory<float>(hidden);
  float *dw2 = device_memory<float>(HV), *db2 = device_memory<float>(outputs);
  float *dh = device_memory<float>(BH), *dz1 = device_memory<float>(BH);
  int32_t *label = device_memory<int32_t>(batch);
  tick_device(LOAD);

  for (int epoch = 1; epoch <= epochs || epoch == 1; epoch++) {
    double sum = 0;
    int number = 0;
    for (; is_step(number); number++, step++) {
      to_device(x, images + (size_t)number * BD, BD);
      to_device(label, labels + number * batch, batch);
      tick_device(COPY);

      LAUNCH(linear, BH)(z1, x, w1, b1, batch, inputs, hidden);
      LAUNCH(relu, BH)(h, z1, BH);
      LAUNCH(linear, BV)(logits, h, w2, b2, batch, hidden, outputs);
      tick_device(FORWARD);

      LAUNCH(softmax, batch)(p, logits, batch, outputs);
      LAUNCH(cross_entropy, 1)(loss, p, label, batch, outputs);
      float host_loss;
      to_host(&host_loss, loss, 1);
      sum += host_loss;
      tick_device(LOSS);

      LAUNCH(loss_gradient, BV)(dlogits, p, label, batch, outputs);
      LAUNCH(weight_gradient, HV)(dw2, h, dlogits, batch, hidden, outputs);
      LAUNCH(bias_gradient, outputs)(db2, dlogits, batch, outputs);
      LAUNCH(input_gradient, BH)(dh, dlogits, w2, batch, hidden, outputs);
      LAUNCH(relu_gradient, BH)(dz1, dh, h, BH);
      LAUNCH(weight_gradient, DH)(dw1, x, dz1, batch, inputs, hidden);
      LAUNCH(bias_gradient, hidden)(db1, dz1, batch, hidden);
      tick_device(BACKWARD);

      LAUNCH(update, DH)(w1, dw1, DH);
      LAUNCH(update, hidden)(b1, db1, hidden);
      LAUNCH(update, HV)(w2, dw2, HV);
      LAUNCH(update, outputs)(b2, db2, outputs);
      tick_device(UPDATE);

      dump_device("x", "to_device", x, batch, inputs);
      dump_device("z1", "linear", z1, batch, hidden);
      dump_device("h", "relu", h, batch, hidden);
      dump_device("logits", "linear", logits, batch, outputs);
      dump_device("probabilities", "softmax", p, batch, outputs);
      dump_device("loss", "cross_entropy", loss, 1, 1);
      dump_device("dlogits", "loss_gradient", dlogits, batch, outputs);
      dump_device("dw2", "weight_gradient", dw2, hidden, outputs);
      dump_device("db2", "bias_gradient", db2, 1, outputs);
      dump_device("dh", "input_gradient", dh, batch, hidden);
      dump_device("dz1", "relu_gradient", dz1, batch, hidden);
      dump_device("dw1", "weight_gradient", dw1, inputs, hidden);
      dump_device("db1", "bias_gradient", db1, 1, hidden);
      dump_device("w1", "update", w1, inputs, hidden);
      dump_device("b1", "update", b1, 1, hidden);
      dump_device("w2", "update", w2, hidden, outputs);
      dump_device("b2", "update", b2, 1, outputs);
      if (is_shown()) printf("step %d loss %.9g\n", step + 1, host_loss);
      skip();
    }
    if (epochs) printf("epoch %d loss %.9g\n", epoch, sum / (number ? number : 1));
  }

  float *test_z1 = device_memory<float>(BH), *test_logits = device_memory<float>(BV);
  float *host_logits = (float *)allocate(sizeof(float) * BV);
  int right = 0;
  for (int r = num_train; epochs && r < num_train + num_test; r += batch) {  // after a few steps there is nothing to test
    const int rows = r + batch <= num_train + num_test ? batch : num_train + num_test - r;
    to_device(x, images + (size_t)r * inputs, (size_t)rows * inputs);
    LAUNCH(linear, rows * hidden)(test_z1, x, w1, b1, rows, inputs, hidden);
    LAUNCH(relu, rows * hidden)(test_z1, test_z1, rows * hidden);
    LAUNCH(linear, rows * outputs)(test_logits, test_z1, w2, b2, rows, hidden, outputs);
    to_host(host_logits, test_logits, (size_t)rows * outputs);
    right += count_right(host_logits, labels + r, rows);
  }
  to_host(start_w1, w1, DH);
  to_host(start_b1, b1, hidden);
  to_host(start_w2, w2, HV);
  to_host(start_b2, b2, outputs);
  report(right, start_w1, start_b1, start_w2, start_b2);
  return 0;
}
