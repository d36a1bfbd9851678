// The perceptron in CUDA with products by cuBLAS, the library that vendors tune: five of the eleven launches of a step.
//
//     nvcc -O3 mlp_cublas.cu -lcublas -o mlp && ./mlp
//
// With no GPU, on picograd's simulator of one, three steps; a stand-in of a few lines (sgemm.h) takes the library's place:
//
//     D=../../../../picograd/devices; c++ -std=c++17 -O2 -ffp-contract=off -fno-strict-aliasing -w -I$D -I$D/cuda \
//       -x c++ mlp_cublas.cu -o mlp && ./mlp mnist_small.bin 0 3
//
// A library takes no bias and no relu: these are kernels of their own, and pass over what a product has just stored. But it
// adds to what is there, alpha * a @ b + beta * c: with alpha -LEARNING_RATE and beta 1 the product of a gradient updates the weights.
#include "sgemm.h"

#define THREAD (int)(blockIdx.x * blockDim.x + threadIdx.x)
typedef Global<float> Out;
typedef Global<const float> In;
typedef Global<const int32_t> Labels;

// ---- products ----
static cublasHandle_t handle;
static const cublasOperation_t PLAIN = CUBLAS_OP_N, TRANSPOSED = CUBLAS_OP_T;

static void check(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fprintf(stderr, "cuBLAS: %s\n", cublasGetStatusString(status));
  exit(1);
}

// out (rows, columns) = alpha * left (rows, depth) @ right (depth, columns) + beta * out, of which left and right may be stored
// transposed. cuBLAS reads memory column by column, where a row-major matrix is its own transpose: so the operands are swapped, for
// out.T = right.T @ left.T.
static void product(float *out, const float *left, cublasOperation_t left_is, const float *right, cublasOperation_t right_is,
                    int rows, int depth, int columns, float alpha = 1, float beta = 0) {
  check(cublasSgemm(handle, right_is, left_is, columns, rows, depth, &alpha, right, right_is == PLAIN ? columns : depth, left,
                    left_is == PLAIN ? depth : rows, &beta, out, columns));
}

// ---- forward ----
__global__ void bias_relu(Out h, In b, int count, int columns) {
  const int i = THREAD;
  if (i < count) h[i] = h[i] + b[i % columns] > 0 ? h[i] + b[i % columns] : 0.0f;
}

__global__ void bias(Out out, In b, int count, int columns) {
  const int i = THREAD;
  if (i < count) out[i] = out[i] + b[i % columns];
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
__global__ void relu_gradient(Out dz, In dh, In h, int count) {
  const int i = THREAD;
  if (i < count) dz[i] = h[i] > 0 ? dh[i] : 0;
}

__global__ void update_bias(Out b, In dout, int rows, int columns) {
  const int c = THREAD;
  if (c >= columns) return;
  float sum = 0;
  for (int r = 0; r < rows; r++) sum += dout[r * columns + c];
  b[c] = b[c] - LEARNING_RATE * sum;
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
  check(cublasCreate(&handle));
  float *w1 = on_device(start_w1, DH), *b1 = on_device(start_b1, hidden);
  float *w2 = on_device(start_w2, HV), *b2 = on_device(start_b2, outputs);
  float *x = device_memory<float>(BD), *h = device_memory<float>(BH), *logits = device_memory<float>(BV);
  float *dlogits = device_memory<float>(BV), *dh = device_memory<float>(BH), *dz1 = device_memory<float>(BH);
  float *losses = device_memory<float>(batch), *host_losses = (float *)allocate(sizeof(float) * batch);
  int32_t *label = device_memory<int32_t>(batch);
  tick_device(LOAD);

  for (int epoch = 1; epoch <= epochs || epoch == 1; epoch++) {
    double sum = 0;
    int number = 0;
    for (; is_step(number); number++, step++) {
      to_device(x, images + (size_t)number * BD, BD);
      to_device(label, labels + number * batch, batch);
      tick_device(COPY);

      product(h, x, PLAIN, w1, PLAIN, batch, inputs, hidden);
      LAUNCH(bias_relu, BH)(h, b1, BH, hidden);
      product(logits, h, PLAIN, w2, PLAIN, batch, hidden, outputs);
      LAUNCH(bias, BV)(logits, b2, BV, outputs);
      tick_device(FORWARD);

      LAUNCH(softmax_loss, batch)(losses, dlogits, logits, label, batch, outputs);
      to_host(host_losses, losses, batch);
      float loss = 0;
      for (int r = 0; r < batch; r++) loss += host_losses[r] / batch;
      sum += loss;
      tick_device(LOSS);

      product(dh, dlogits, PLAIN, w2, TRANSPOSED, batch, outputs, hidden);
      LAUNCH(relu_gradient, BH)(dz1, dh, h, BH);
      tick_device(BACKWARD);

      product(w2, h, TRANSPOSED, dlogits, PLAIN, hidden, batch, outputs, -LEARNING_RATE, 1);
      LAUNCH(update_bias, outputs)(b2, dlogits, batch, outputs);
      product(w1, x, TRANSPOSED, dz1, PLAIN, inputs, batch, hidden, -LEARNING_RATE, 1);
      LAUNCH(update_bias, hidden)(b1, dz1, batch, hidden);
      tick_device(UPDATE);

      dump_device("x", "to_device", x, batch, inputs);
      dump_device("h", "bias_relu", h, batch, hidden);
      dump_device("logits", "bias", logits, batch, outputs);
      dump("loss", "softmax_loss", &loss, 1, 1);
      dump_device("dlogits", "softmax_loss", dlogits, batch, outputs);
      dump_device("dh", "product", dh, batch, hidden);
      dump_device("dz1", "relu_gradient", dz1, batch, hidden);
      dump_device("w1", "product", w1, inputs, hidden);
      dump_device("b1", "update_bias", b1, 1, hidden);
      dump_device("w2", "product", w2, hidden, outputs);
      dump_device("b2", "update_bias", b2, 1, outputs);
      if (is_shown()) printf("step %d loss %.9g\n", step + 1, loss);
      skip();
    }
    if (epochs) printf("epoch %d loss %.9g\n", epoch, sum / (number ? number : 1));
  }

  float *host_logits = (float *)allocate(sizeof(float) * BV);
  int right = 0;
  for (int r = num_train; epochs && r < num_train + num_test; r += batch) {  // after a few steps there is nothing to test
    const int rows = r + batch <= num_train + num_test ? batch : num_train + num_test - r;
    to_device(x, images + (size_t)r * inputs, (size_t)rows * inputs);
    product(h, x, PLAIN, w1, PLAIN, rows, inputs, hidden);
    LAUNCH(bias_relu, rows * hidden)(h, b1, rows * hidden, hidden);
    product(logits, h, PLAIN, w2, PLAIN, rows, hidden, outputs);
    LAUNCH(bias, rows * outputs)(logits, b2, rows * outputs, outputs);
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
