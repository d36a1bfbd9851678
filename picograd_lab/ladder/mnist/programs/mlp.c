// The perceptron in plain C: a function for each step of the mathematics, loops and nothing else.
//
//     cc -O3 -ffp-contract=off mlp.c -o mlp -lm && ./mlp
//
// The same with -O0 has the same bits: neither changes the order of a sum, and -ffp-contract=off keeps a * b + c two roundings.
// Matrices are row-major. Where a loop could go in two orders the inner one runs along memory, which the compiler vectorises.
#include "common.h"
#include <math.h>

// ---- forward ----
// out (rows, columns) = in (rows, depth) @ w (depth, columns) + b (columns)
static void linear(float *out, const float *in, const float *w, const float *b, int rows, int depth, int columns) {
  for (int r = 0; r < rows; r++) {
    float *row = out + r * columns;
    for (int c = 0; c < columns; c++) row[c] = 0;
    for (int k = 0; k < depth; k++)
      for (int c = 0; c < columns; c++) row[c] += in[r * depth + k] * w[k * columns + c];
    for (int c = 0; c < columns; c++) row[c] += b[c];
  }
}

static void relu(float *h, const float *z, int count) {
  for (int i = 0; i < count; i++) h[i] = z[i] > 0 ? z[i] : 0;
}

// ---- loss ----
static void softmax(float *p, const float *logits) {
  for (int r = 0; r < batch; r++) {
    const float *row = logits + r * outputs;
    float largest = row[0], sum = 0;
    for (int v = 1; v < outputs; v++) largest = row[v] > largest ? row[v] : largest;
    for (int v = 0; v < outputs; v++) sum += p[r * outputs + v] = expf(row[v] - largest);
    for (int v = 0; v < outputs; v++) p[r * outputs + v] /= sum;
  }
}

static float cross_entropy(const float *p, const int32_t *label) {
  float sum = 0;
  for (int r = 0; r < batch; r++) sum -= logf(p[r * outputs + label[r]]);
  return sum / batch;
}

// ---- backward ----
// d(loss) / d(logits) = (p - one hot) / batch
static void loss_gradient(float *dlogits, const float *p, const int32_t *label) {
  for (int r = 0; r < batch; r++)
    for (int v = 0; v < outputs; v++) dlogits[r * outputs + v] = (p[r * outputs + v] - (v == label[r])) / batch;
}

// dw (depth, columns) = in (batch, depth) transposed @ dout (batch, columns)
static void weight_gradient(float *dw, const float *in, const float *dout, int depth, int columns) {
  memset(dw, 0, sizeof(float) * depth * columns);
  for (int r = 0; r < batch; r++)
    for (int k = 0; k < depth; k++)
      for (int c = 0; c < columns; c++) dw[k * columns + c] += in[r * depth + k] * dout[r * columns + c];
}

static void bias_gradient(float *db, const float *dout, int columns) {
  memset(db, 0, sizeof(float) * columns);
  for (int r = 0; r < batch; r++)
    for (int c = 0; c < columns; c++) db[c] += dout[r * columns + c];
}

// din (batch, depth) = dout (batch, columns) @ w (depth, columns) transposed
static void input_gradient(float *din, const float *dout, const float *w, int depth, int columns) {
  for (int r = 0; r < batch; r++)
    for (int k = 0; k < depth; k++) {
      float sum = 0;
      for (int c = 0; c < columns; c++) sum += dout[r * columns + c] * w[k * columns + c];
      din[r * depth + k] = sum;
    }
}

static void relu_gradient(float *dz, const float *dh, const float *h, int count) {
  for (int i = 0; i < count; i++) dz[i] = h[i] > 0 ? dh[i] : 0;
}

// ---- update ----
static void update(float *w, const float *dw, int count) {
  for (int i = 0; i < count; i++) w[i] -= LEARNING_RATE * dw[i];
}

static float *floats(int rows, int columns) { return (float *)allocate(sizeof(float) * rows * columns); }

int main(int count, char **words) {
  skip();
  read_problem(count, words);
  float *w1 = start_w1, *b1 = start_b1, *w2 = start_w2, *b2 = start_b2;
  float *x = floats(batch, inputs), *z1 = floats(batch, hidden), *h = floats(batch, hidden);
  float *logits = floats(batch, outputs), *p = floats(batch, outputs), *dlogits = floats(batch, outputs);
  float *dw1 = floats(inputs, hidden), *db1 = floats(1, hidden), *dw2 = floats(hidden, outputs), *db2 = floats(1, outputs);
  float *dh = floats(batch, hidden), *dz1 = floats(batch, hidden);
  tick(LOAD);

  for (int epoch = 1; epoch <= epochs || epoch == 1; epoch++) {
    double sum = 0;
    int number = 0;
    for (; is_step(number); number++, step++) {
      const int32_t *label = labels + number * batch;
      memcpy(x, images + (size_t)number * batch * inputs, sizeof(float) * batch * inputs);
      tick(COPY);

      linear(z1, x, w1, b1, batch, inputs, hidden);
      relu(h, z1, batch * hidden);
      linear(logits, h, w2, b2, batch, hidden, outputs);
      tick(FORWARD);

      softmax(p, logits);
      const float loss = cross_entropy(p, label);
      sum += loss;
      tick(LOSS);

      loss_gradient(dlogits, p, label);
      weight_gradient(dw2, h, dlogits, hidden, outputs);
      bias_gradient(db2, dlogits, outputs);
      input_gradient(dh, dlogits, w2, hidden, outputs);
      relu_gradient(dz1, dh, h, batch * hidden);
      weight_gradient(dw1, x, dz1, inputs, hidden);
      bias_gradient(db1, dz1, hidden);
      tick(BACKWARD);

      update(w1, dw1, inputs * hidden);
      update(b1, db1, hidden);
      update(w2, dw2, hidden * outputs);
      update(b2, db2, outputs);
      tick(UPDATE);

      dump("x", "memcpy", x, batch, inputs);
      dump("z1", "linear", z1, batch, hidden);
      dump("h", "relu", h, batch, hidden);
      dump("logits", "linear", logits, batch, outputs);
      dump("probabilities", "softmax", p, batch, outputs);
      dump("loss", "cross_entropy", &loss, 1, 1);
      dump("dlogits", "loss_gradient", dlogits, batch, outputs);
      dump("dw2", "weight_gradient", dw2, hidden, outputs);
      dump("db2", "bias_gradient", db2, 1, outputs);
      dump("dh", "input_gradient", dh, batch, hidden);
      dump("dz1", "relu_gradient", dz1, batch, hidden);
      dump("dw1", "weight_gradient", dw1, inputs, hidden);
      dump("db1", "bias_gradient", db1, 1, hidden);
      dump("w1", "update", w1, inputs, hidden);
      dump("b1", "update", b1, 1, hidden);
      dump("w2", "update", w2, hidden, outputs);
      dump("b2", "update", b2, 1, outputs);
      if (is_shown()) printf("step %d loss %.9g\n", step + 1, loss);
      skip();
    }
    if (epochs) printf("epoch %d loss %.9g\n", epoch, sum / (number ? number : 1));
  }

  int right = 0;
  float *test_z1 = floats(1, hidden), *test_logits = floats(1, outputs);
  for (int r = num_train; epochs && r < num_train + num_test; r++) {  // after a few steps there is nothing to test
    linear(test_z1, images + (size_t)r * inputs, w1, b1, 1, inputs, hidden);
    relu(test_z1, test_z1, hidden);
    linear(test_logits, test_z1, w2, b2, 1, hidden, outputs);
    right += count_right(test_logits, labels + r, 1);
  }
  report(right, w1, b1, w2, b2);
  return 0;
}
