"""Calls of bench/survey.py at realistic sizes, beside those of the table of operations.

A row is an expression, a semicolon and its operands; `d` before it asks for its gradients, too. Names: L is the library, F
its nn.functional, P makes pairs of complex numbers, C complex numbers of pairs. An operand is a shape of float32, or a kind
and a shape:

    x=8x32x64x64    i=int100:64 (integers below 100)    m=bool:64    p=unit:64 (0 to 1)    s=sorted:64
    a=spd:64x8x8 (symmetric, positive definite)    q=int8:64    h=float16:64    g=float64:64
"""

ROWS = """
d F.conv1d(x, w, padding=1) ; x=8x64x1024, w=64x64x3
d F.conv1d(x, w, padding=2, dilation=2) ; x=8x64x1024, w=64x64x3
d F.conv1d(x, w, padding=1, groups=64) ; x=8x64x1024, w=64x1x3
d F.conv1d(x, w, padding=1, groups=4) ; x=8x64x1024, w=64x16x3
d F.conv2d(x, w, padding=1) ; x=8x32x56x56, w=64x32x3x3
d F.conv2d(x, w, stride=2, padding=1) ; x=8x32x56x56, w=64x32x3x3
d F.conv2d(x, w, padding=3, stride=2) ; x=4x3x112x112, w=64x3x7x7
d F.conv2d(x, w, padding=2, dilation=2) ; x=8x32x56x56, w=32x32x3x3
d F.conv2d(x, w, padding=1, groups=32) ; x=8x32x56x56, w=32x1x3x3
d F.conv2d(x, w, padding=2, groups=32) ; x=8x32x56x56, w=32x1x5x5
d F.conv2d(x, w, padding=3, groups=96) ; x=4x96x56x56, w=96x1x7x7
d F.conv2d(x, w, padding=1, stride=2, groups=32) ; x=8x32x56x56, w=32x1x3x3
d F.conv2d(x, w, padding=1, groups=4) ; x=8x32x56x56, w=64x8x3x3
d F.conv2d(x, w) ; x=8x64x56x56, w=64x64x1x1
d F.conv2d(x, w, stride=2) ; x=8x64x56x56, w=64x64x1x1
d F.conv2d(x, w, padding=2) ; x=8x16x33x33, w=32x16x5x5
d F.conv2d(x, w, stride=16) ; x=8x3x224x224, w=192x3x16x16
d F.conv2d(x, w, padding=1) ; x=1x100x33x33, w=100x100x3x3
d F.conv2d(x, w, padding=(0, 3)) ; x=8x32x28x28, w=32x32x1x7
d F.conv2d(x, w, padding=1) ; x=1x512x7x7, w=512x512x3x3
d F.conv3d(x, w, padding=1) ; x=2x16x16x32x32, w=16x16x3x3x3
d F.conv3d(x, w, padding=1, stride=2) ; x=2x16x16x32x32, w=32x16x3x3x3
d F.conv3d(x, w, padding=1, groups=16) ; x=2x16x16x32x32, w=16x1x3x3x3
d F.conv_transpose1d(x, w, stride=2, padding=1) ; x=8x64x512, w=64x32x4
d F.conv_transpose2d(x, w, stride=2, padding=1) ; x=8x64x28x28, w=64x32x4x4
d F.conv_transpose2d(x, w, stride=2) ; x=8x64x28x28, w=64x32x2x2
d F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1) ; x=8x64x28x28, w=64x32x3x3
d F.conv_transpose2d(x, w, stride=1, padding=1) ; x=8x64x28x28, w=64x32x3x3
d F.conv_transpose2d(x, w, stride=2, padding=1, groups=64) ; x=8x64x28x28, w=64x1x4x4
d F.conv_transpose2d(x, w, stride=2, padding=1, groups=4) ; x=8x64x28x28, w=64x8x4x4
d F.conv_transpose2d(x, w, stride=1, padding=2, dilation=2) ; x=8x64x28x28, w=64x32x3x3
d F.conv_transpose3d(x, w, stride=2, padding=1) ; x=2x32x8x16x16, w=32x16x4x4x4
d F.conv_transpose2d(x, w, stride=8) ; x=8x96x8x8, w=96x3x8x8
F.conv2d(x, w, padding=1) ; x=float64:8x32x28x28, w=float64:32x32x3x3
F.conv2d(x, w, padding=1) ; x=float16:8x32x28x28, w=float16:32x32x3x3
# ---- pooling ----
d F.max_pool1d(x, 3, 2, 1) ; x=16x64x1024
d F.max_pool2d(x, 2) ; x=8x32x64x64
d F.max_pool2d(x, 3, 2, 1) ; x=8x32x64x64
d F.max_pool2d(x, 3, 1, 1) ; x=8x32x64x64
d F.max_pool2d(x, 3, 2, 1, dilation=2) ; x=8x32x64x64
d F.max_pool2d(x, 5, 1, 2) ; x=8x32x64x64
d F.max_pool2d(x, 13, 1, 6) ; x=4x32x32x32
d F.max_pool2d(x, 2, return_indices=True) ; x=8x32x64x64
d F.max_pool2d(x, 3, 2, ceil_mode=True) ; x=8x32x33x33
d F.max_pool3d(x, 2) ; x=2x16x16x64x64
d F.max_pool3d(x, 3, 2, 1) ; x=2x16x16x64x64
d F.avg_pool1d(x, 3, 2, 1) ; x=16x64x1024
d F.avg_pool1d(x, 25, 1, 12) ; x=16x64x1024
d F.avg_pool2d(x, 2) ; x=8x32x64x64
d F.avg_pool2d(x, 3, 2, 1) ; x=8x32x64x64
d F.avg_pool2d(x, 3, 1, 1) ; x=8x32x64x64
d F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False) ; x=8x32x64x64
d F.avg_pool3d(x, 2) ; x=2x16x16x64x64
d F.avg_pool3d(x, 3, 2, 1) ; x=2x16x16x64x64
d F.adaptive_avg_pool1d(x, 7) ; x=16x64x1024
d F.adaptive_avg_pool2d(x, 1) ; x=8x128x33x33
d F.adaptive_avg_pool2d(x, 7) ; x=8x64x56x56
d F.adaptive_avg_pool2d(x, 7) ; x=8x64x33x33
d F.adaptive_avg_pool2d(x, (6, 5)) ; x=8x64x33x33
d F.adaptive_avg_pool3d(x, 3) ; x=2x16x16x32x32
d F.adaptive_max_pool1d(x, 7) ; x=16x64x1024
d F.adaptive_max_pool2d(x, 7) ; x=8x64x33x33
d F.adaptive_max_pool2d(x, 1) ; x=8x64x33x33
d F.adaptive_max_pool2d(x, 7, return_indices=True) ; x=8x64x33x33
d F.adaptive_max_pool3d(x, 3) ; x=2x16x16x32x32
d F.lp_pool2d(x, 2, 3, 2) ; x=8x32x64x64
F.fractional_max_pool2d(x, 2, 31) ; x=8x32x64x64
d F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2) ; x=8x32x64x64
# ---- sizes and windows ----
d F.interpolate(x, scale_factor=2) ; x=8x32x32x32
d F.interpolate(x, scale_factor=2, mode='bilinear') ; x=8x32x32x32
d F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=True) ; x=8x32x32x32
d F.interpolate(x, scale_factor=2, mode='bicubic') ; x=8x16x32x32
d F.interpolate(x, size=(50, 70), mode='bilinear') ; x=8x32x64x64
d F.interpolate(x, size=(50, 70), mode='nearest') ; x=8x32x64x64
d F.interpolate(x, scale_factor=0.5, mode='bilinear', antialias=True) ; x=8x16x64x64
d F.interpolate(x, scale_factor=0.5, mode='area') ; x=8x32x64x64
d F.interpolate(x, scale_factor=2, mode='linear') ; x=16x32x1024
d F.interpolate(x, scale_factor=2, mode='trilinear') ; x=2x8x16x16x16
d F.interpolate(x, scale_factor=2) ; x=2x8x16x16x16
d F.grid_sample(x, g.tanh(), align_corners=False) ; x=4x16x64x64, g=4x64x64x2
d F.grid_sample(x, g.tanh(), mode='nearest', align_corners=False) ; x=4x16x64x64, g=4x64x64x2
d F.grid_sample(x, g.tanh(), mode='bicubic', align_corners=False) ; x=4x16x64x64, g=4x64x64x2
d F.grid_sample(x, g.tanh(), padding_mode='reflection', align_corners=False) ; x=4x16x64x64, g=4x64x64x2
d F.grid_sample(x, g.tanh(), align_corners=False) ; x=1x4x16x32x32, g=1x16x32x32x3
d F.affine_grid(t, (8, 3, 128, 128), align_corners=False) ; t=8x2x3
d F.unfold(x, 3, padding=1) ; x=4x16x64x64
d F.unfold(x, 4, stride=4) ; x=4x16x64x64
d F.fold(x, 64, 3, padding=1) ; x=4x144x4096
d F.fold(x, 64, 4, stride=4) ; x=4x256x256
d F.pad(x, (1, 1, 1, 1)) ; x=8x32x64x64
d F.pad(x, (3, 3, 3, 3), mode='reflect') ; x=8x32x64x64
d F.pad(x, (3, 3, 3, 3), mode='replicate') ; x=8x32x64x64
d F.pad(x, (3, 3, 3, 3), mode='circular') ; x=8x32x64x64
d F.pad(x, (3, 3), mode='reflect') ; x=8x32x4096
d F.pixel_shuffle(x, 2) ; x=8x64x32x32
d F.pixel_unshuffle(x, 2) ; x=8x16x64x64
F.channel_shuffle(x, 4) ; x=8x64x32x32
# ---- norms ----
d F.layer_norm(x, (768,), w, b) ; x=1024x768, w=768, b=768
d F.layer_norm(x, (33,), w, b) ; x=30000x33, w=33, b=33
d F.rms_norm(x, (768,), w) ; x=1024x768, w=768
d F.group_norm(x, 8, w, b) ; x=8x64x32x32, w=64, b=64
d F.instance_norm(x) ; x=8x64x32x32
d F.batch_norm(x, None, None, w, b, True) ; x=8x64x32x32, w=64, b=64
d F.batch_norm(x, None, None, w, b, True) ; x=4096x256, w=256, b=256
d F.batch_norm(x, None, None, w, b, True) ; x=2x16x16x32x32, w=16, b=16
d F.local_response_norm(x, 5) ; x=8x64x32x32
d F.normalize(x, dim=1) ; x=4096x256
d F.normalize(x, dim=1) ; x=8x64x32x32
d F.cosine_similarity(x, y) ; x=4096x256, y=4096x256
d F.cosine_similarity(x, y, dim=0) ; x=4096x256, y=4096x256
d F.pairwise_distance(x, y) ; x=4096x256, y=4096x256
d F.softmax(x, 1) ; x=8x64x32x32
d F.softmax(x, 0) ; x=1024x1024
d F.log_softmax(x, 1) ; x=8x64x32x32
d F.log_softmax(x, -1) ; x=1024x1000
d F.softmax(x, -1) ; x=100000x7
d F.softmax(x, -1) ; x=30000x33
d F.gumbel_softmax(x) ; x=4096x256
d F.glu(x) ; x=4096x512
d F.glu(x, 1) ; x=8x64x32x32
d F.prelu(x, w) ; x=8x64x32x32, w=64
# ---- losses ----
d F.cross_entropy(x, t) ; x=1024x1000, t=int1000:1024
d F.cross_entropy(x, t, label_smoothing=0.1) ; x=1024x1000, t=int1000:1024
d F.cross_entropy(x, t, weight=w) ; x=1024x1000, t=int1000:1024, w=unit:1000
d F.cross_entropy(x, t) ; x=8x21x64x64, t=int21:8x64x64
d F.cross_entropy(x, p) ; x=1024x1000, p=unit:1024x1000
d F.nll_loss(x, t) ; x=1024x1000, t=int1000:1024
d F.nll_loss(x, t) ; x=8x21x64x64, t=int21:8x64x64
d F.mse_loss(x, y) ; x=1024x1024, y=1024x1024
d F.l1_loss(x, y) ; x=1024x1024, y=1024x1024
d F.smooth_l1_loss(x, y) ; x=1024x1024, y=1024x1024
d F.huber_loss(x, y) ; x=1024x1024, y=1024x1024
d F.binary_cross_entropy(x, y) ; x=unit:1024x1024, y=unit:1024x1024
d F.binary_cross_entropy_with_logits(x, y) ; x=1024x1024, y=unit:1024x1024
d F.kl_div(x, y) ; x=1024x1024, y=unit:1024x1024
d F.poisson_nll_loss(x, y) ; x=1024x1024, y=unit:1024x1024
d F.gaussian_nll_loss(x, y, v) ; x=1024x1024, y=1024x1024, v=unit:1024x1024
d F.hinge_embedding_loss(x, y) ; x=1024x1024, y=1024x1024
d F.soft_margin_loss(x, y) ; x=1024x1024, y=1024x1024
d F.margin_ranking_loss(x, y, z) ; x=1000000, y=1000000, z=1000000
d F.triplet_margin_loss(x, y, z) ; x=4096x128, y=4096x128, z=4096x128
d F.cosine_embedding_loss(x, y, z.sign()) ; x=4096x128, y=4096x128, z=4096
d F.multi_margin_loss(x, t) ; x=1024x1000, t=int1000:1024
d F.multilabel_margin_loss(x, t) ; x=256x40, t=int40:256x40
d F.multilabel_soft_margin_loss(x, y) ; x=1024x1000, y=unit:1024x1000
d F.ctc_loss(F.log_softmax(x, -1), t + 1, n + 100, m + 20) ; x=100x16x30, t=int29:16x20, n=int1:16, m=int1:16
# ---- products ----
d L.einsum('bij,bjk->bik', x, y) ; x=16x128x128, y=16x128x128
d L.einsum('bhid,bhjd->bhij', x, y) ; x=4x8x128x64, y=4x8x128x64
d L.einsum('bihd,bjhd->bhij', x, y) ; x=4x128x8x64, y=4x128x8x64
d L.einsum('bhij,bjhd->bihd', x, y) ; x=4x8x128x128, y=4x128x8x64
d L.einsum('bi,bj->bij', x, y) ; x=64x256, y=64x256
d L.einsum('bij->bji', x) ; x=64x128x128
d L.einsum('bii->bi', x) ; x=64x256x256
d L.einsum('bij,bij->b', x, y) ; x=64x128x128, y=64x128x128
d L.einsum('ij,ij->', x, y) ; x=1024x1024, y=1024x1024
d L.einsum('ijk,k->ij', x, y) ; x=128x128x64, y=64
d L.einsum('ijk,j->ik', x, y) ; x=128x128x64, y=128
d L.einsum('ijk,i->jk', x, y) ; x=128x128x64, y=128
d L.einsum('bnd,ndk->bnk', x, y) ; x=64x16x128, y=16x128x128
d L.einsum('bn,anm,bm->ba', x, w, y) ; x=64x128, w=64x128x128, y=64x128
d L.einsum('bchw,cd->bdhw', x, y) ; x=8x64x28x28, y=64x64
d L.einsum('i,j,k->ijk', x, y, z) ; x=128, y=128, z=128
d L.einsum('ab,bc,cd->ad', x, y, z) ; x=256x256, y=256x256, z=256x256
d x @ y ; x=512x512, y=512x512
d x @ y.T ; x=512x512, y=512x512
d x.T @ y ; x=512x512, y=512x512
d x @ y ; x=1024x1024, y=1024
d y @ x ; x=1024x1024, y=1024
d x @ y ; x=100x100, y=100x100
d x @ y ; x=33x33, y=33x33
d x @ y ; x=7x7, y=7x7
d x @ y ; x=1000x7, y=7x1000
d x @ y ; x=7x100000, y=100000x7
d x @ y ; x=4096x33, y=33x33
d x @ y ; x=1024x7x7, y=1024x7x7
d x @ y ; x=1024x33x33, y=1024x33x33
d x @ y ; x=10000x3x3, y=10000x3x3
d x @ y ; x=10000x4x4, y=10000x4x1
d x @ y ; x=64x100x100, y=100x100
x @ y ; x=float64:512x512, y=float64:512x512
x @ y ; x=float16:256x256, y=float16:256x256
x.bfloat16() @ y.bfloat16() ; x=512x512, y=512x512
i @ j ; i=int99:256x256, j=int99:256x256
d L.outer(x, y) ; x=1024, y=1024
d L.kron(x, y) ; x=32x32, y=32x32
d L.dot(x, y) ; x=1000000, y=1000000
d L.cross(x, y, dim=-1) ; x=300000x3, y=300000x3
d L.tensordot(x, y, dims=([1, 2], [1, 0])) ; x=64x32x48, y=48x32x64
d L.cdist(x, y) ; x=512x64, y=512x64
d L.cdist(x, y, p=1) ; x=512x64, y=512x64
d L.cdist(x, y) ; x=8x256x3, y=8x256x3
F.pdist(x) ; x=512x64
d F.bilinear(x, y, w) ; x=128x64, y=128x64, w=64x64x64
d L.linalg.multi_dot([x, y, z]) ; x=256x256, y=256x256, z=256x256
L.chain_matmul(x, y, z) ; x=256x256, y=256x256, z=256x256
L.matrix_power(x, 5) ; x=128x128
L.linalg.matrix_exp(x / 30) ; x=16x32x32
# ---- linear algebra ----
L.linalg.inv(x) ; x=spd:128x128
L.linalg.inv(x) ; x=spd:256x16x16
L.linalg.inv(x) ; x=spd:10000x3x3
d L.linalg.solve(x, y) ; x=spd:256x256, y=256x16
d L.linalg.solve(x, y) ; x=spd:256x16x16, y=256x16x4
d L.linalg.cholesky(x) ; x=spd:256x256
d L.linalg.cholesky(x) ; x=spd:256x16x16
L.linalg.det(x) ; x=spd:256x16x16
L.linalg.det(x) ; x=spd:10000x3x3
L.linalg.slogdet(x) ; x=spd:256x256
L.linalg.qr(x) ; x=256x128
L.linalg.qr(x) ; x=256x16x16
L.linalg.eigh(x) ; x=spd:128x128
L.linalg.eigh(x) ; x=spd:256x16x16
L.linalg.svd(x, full_matrices=False) ; x=128x64
L.linalg.svdvals(x) ; x=128x64
L.linalg.eigvalsh(x) ; x=spd:128x128
L.linalg.pinv(x) ; x=128x64
L.linalg.lstsq(x, y) ; x=256x64, y=256x4
d L.linalg.solve_triangular(x.tril(), y, upper=False) ; x=spd:256x256, y=256x64
L.linalg.lu_factor(x) ; x=spd:256x256
L.linalg.matrix_norm(x) ; x=16x256x256
L.linalg.matrix_norm(x, 1) ; x=16x256x256
L.linalg.matrix_rank(x) ; x=128x64
L.cholesky_solve(y, x.tril()) ; x=spd:128x128, y=128x16
L.linalg.vander(x, N=16) ; x=10000
# ---- fourier ----
P(L.fft.fft(C(x))) ; x=64x4096x2
P(L.fft.rfft(x)) ; x=64x4096
P(L.fft.rfft(x)) ; x=64x1000
P(L.fft.rfft(x)) ; x=64x1009
P(L.fft.rfft2(x)) ; x=8x256x256
P(L.fft.fft2(C(x))) ; x=8x100x100x2
P(L.fft.fft(C(x))) ; x=10000x16x2
L.fft.irfft(L.fft.rfft(x)) ; x=64x4096
# ---- indices ----
d L.gather(x, 1, i) ; x=1024x1024, i=int1024:1024x1024
d L.gather(x, 0, i) ; x=1024x1024, i=int1024:1024x1024
d L.gather(x, 1, i) ; x=4096x256, i=int256:4096x1
d L.index_select(x, 0, i) ; x=10000x128, i=int10000:10000
d L.index_select(x, 1, i) ; x=1024x1024, i=int1024:1024
d L.take_along_dim(x, i, 1) ; x=1024x1024, i=int1024:1024x64
d L.take(x, i) ; x=1024x1024, i=int1000000:1000000
d x[i] ; x=10000x128, i=int10000:10000
d x[:, i] ; x=1024x1024, i=int1024:1024
d x[i, j] ; x=1024x1024, i=int1024:1000000, j=int1024:1000000
d x[:, i, j] ; x=64x128x128, i=int128:10000, j=int128:10000
d x[i, :, j] ; x=128x64x128, i=int128:10000, j=int128:10000
x[m] ; x=1024x1024, m=bool:1024x1024
x[m] ; x=4096x256, m=bool:4096
x.masked_select(m) ; x=1024x1024, m=bool:1024x1024
m.nonzero() ; m=bool:1024x1024
m.nonzero() ; m=bool:1000000
L.where(m) ; m=bool:1024x1024
L.argwhere(m) ; m=bool:1024x1024
d L.where(m, x, y) ; m=bool:1024x1024, x=1024x1024, y=1024x1024
d x.masked_fill(m, 0.0) ; m=bool:1024x1024, x=1024x1024
d x.masked_fill(m, 0.0) ; m=bool:64x1x128, x=64x128x128
d x.masked_scatter(m, y) ; m=bool:1024x1024, x=1024x1024, y=1024x1024
d L.scatter(x, 1, i, y) ; x=1024x1024, i=int1024:1024x1024, y=1024x1024
d L.scatter_add(x, 1, i, y) ; x=1024x1024, i=int1024:1024x1024, y=1024x1024
d L.scatter_add(x, 0, i, y) ; x=1024x1024, i=int1024:1024x1024, y=1024x1024
d L.scatter_add(x, 0, i, y) ; x=1000, i=int1000:1000000, y=1000000
d L.scatter_reduce(x, 1, i, y, 'amax') ; x=1024x1024, i=int1024:1024x1024, y=1024x1024
d L.scatter_reduce(x, 1, i, y, 'mean') ; x=1024x1024, i=int1024:1024x1024, y=1024x1024
L.scatter_reduce(x, 1, i, y, 'prod') ; x=1024x1024, i=int1024:1024x1024, y=1024x1024
d L.index_add(x, 0, i, y) ; x=1000x128, i=int1000:10000, y=10000x128
d L.index_add(x, 1, i, y) ; x=1024x128, i=int128:1024, y=1024x1024
d L.index_copy(x, 0, i, y) ; x=1000x128, i=int1000:1000, y=1000x128
d L.index_fill(x, 0, i, 1.0) ; x=10000x128, i=int10000:1000
d L.index_reduce(x, 0, i, y, 'amax') ; x=1000x128, i=int1000:10000, y=10000x128
d x.index_put((i,), y) ; x=10000x128, i=int10000:1000, y=1000x128
d x.index_put((i, j), y, accumulate=True) ; x=1024x1024, i=int1024:100000, j=int1024:100000, y=100000
d x.index_put((i, j), y) ; x=1024x1024, i=int1024:100000, j=int1024:100000, y=100000
F.one_hot(i, 1000) ; i=int1000:1024
L.bincount(i, minlength=1000) ; i=int1000:1000000
L.bincount(i, w, minlength=1000) ; i=int1000:1000000, w=1000000
L.histc(x, 100) ; x=1000000
L.histogram(x, 100) ; x=1000000
L.bucketize(x, s) ; x=1000000, s=sorted:100
L.searchsorted(s, x) ; s=sorted:1000, x=unit:1000000
L.searchsorted(s, x) ; s=sorted:64x1000, x=unit:64x1000
L.isin(i, j) ; i=int10000:100000, j=int10000:1000
L.tril(x) ; x=1024x1024
L.triu(x, 1) ; x=64x128x128
L.tril_indices(1000, 1000) + i ; i=int9:1
L.combinations(x, 2) ; x=1000
L.cartesian_prod(x, y) ; x=1000, y=1000
L.meshgrid(x, y, indexing='ij') ; x=1000, y=1000
L.diag(x) ; x=1000
L.diag_embed(x) ; x=64x128
L.diagonal(x, 0, 1, 2) + 1 ; x=64x256x256
L.block_diag(x, y, z) ; x=300x300, y=300x300, z=300x300
L.trace(x) ; x=1024x1024
d F.embedding(i, w) ; i=int10000:64x128, w=10000x128
d F.embedding(i, w) ; i=int10000:16384, w=10000x16
d F.embedding_bag(i, w, o * 50, mode='sum') ; i=int10000:10000, w=10000x64, o=int1:1
d F.embedding_bag(i, w, mode='mean') ; i=int10000:512x32, w=10000x64
d F.embedding_bag(i, w, mode='max') ; i=int10000:512x32, w=10000x64
d F.embedding_bag(i, w, L.arange(0, 10000, 20), mode='mean') ; i=int10000:10000, w=10000x64
# ---- joining and moving ----
d L.cat([x, y, z]) ; x=512x1024, y=512x1024, z=512x1024
d L.cat([x, y]) ; x=1000000, y=1000000
d L.cat([x, y, z], 1) ; x=1024x512, y=1024x512, z=1024x512
d L.cat([x, y, z], -1) ; x=100000x7, y=100000x7, z=100000x7
d L.cat([x, y], 1) ; x=8x32x32x32, y=8x64x32x32
d L.stack([x, y, z]) ; x=512x1024, y=512x1024, z=512x1024
d L.stack([x, y, z], -1) ; x=512x1024, y=512x1024, z=512x1024
d [p + 1 for p in x.split(100, 1)] ; x=1024x1000
d [p * 2 for p in x.chunk(3, -1)] ; x=1024x1536
d x.repeat_interleave(3, 0) ; x=1024x512
d x.repeat_interleave(3, 1) ; x=1024x512
x.repeat_interleave(n, 0) ; x=1024x512, n=int5:1024
x.repeat_interleave(n, 0, output_size=int(n.sum())) ; x=1024x512, n=int5:1024
d x.repeat(3, 2) ; x=512x512
d L.tile(x, (2, 3)) ; x=512x512
d x.T.contiguous() ; x=1024x1024
d x.permute(0, 2, 3, 1).contiguous() ; x=8x64x56x56
d x.permute(0, 3, 1, 2).contiguous() ; x=8x56x56x64
d x.permute(2, 1, 0).contiguous() ; x=128x64x128
d x.permute(0, 2, 1, 3).contiguous() ; x=8x128x12x64
d x.flip(0).contiguous() ; x=1024x1024
d x.flip(1).contiguous() ; x=1024x1024
d x.roll(5, 1) ; x=1024x1024
d x.roll((3, 7), (0, 1)) ; x=1024x1024
d L.rot90(x) ; x=1024x1024
d x.unfold(1, 16, 4).contiguous() ; x=64x4096
d x[:, ::2].contiguous() ; x=1024x1024
d x[::2, ::3].contiguous() ; x=1024x1024
d x.expand(64, 128, 256).contiguous() ; x=128x1
d x + y ; x=1024x1, y=1x1024
d x * y ; x=64x1x128, y=1x128x128
d x + y ; x=8x64x56x56, y=64x1x1
d x + y ; x=100000x7, y=7
d x + y ; x=7x100000, y=7x1
d L.as_strided(x, (1000, 512), (512, 2)) + 1 ; x=1024x1024
# ---- running values and sums ----
d x.cumsum(0) ; x=1024x1024
d x.cumsum(1) ; x=1024x1024
d x.cumsum(0) ; x=1000000
d x.cumsum(1) ; x=64x256x64
d x.cumprod(1) ; x=1024x1024
d x.cumprod(0) ; x=1024x1024
x.cummax(1) ; x=1024x1024
x.cummax(0) ; x=1024x1024
d x.logcumsumexp(1) ; x=1024x1024
d x.logcumsumexp(0) ; x=1024x1024
i.cumsum(1) ; i=int99:1024x1024
m.cumsum(1) ; m=bool:1024x1024
d x.diff() ; x=1024x1024
d L.trapezoid(x) ; x=1024x1024
L.cumulative_trapezoid(x) ; x=1024x1024
L.gradient(x) ; x=1024x1024
d x.sum(0) ; x=1024x1024
d x.sum(1) ; x=1024x1024
d x.sum(1) ; x=64x128x128
d x.sum((0, 2)) ; x=64x128x128
d x.sum((0, 2, 3)) ; x=8x64x56x56
d x.sum(1) ; x=100000x7
d x.sum(0) ; x=100000x7
d x.sum(0) ; x=7x100000
d x.sum() ; x=1000000
d x.mean((1, 3)) ; x=33x33x33x33
d x.prod(1) ; x=1024x1024
d x.prod(0) ; x=1024x1024
d x.var(1) ; x=1024x1024
d x.var(0) ; x=1024x1024
d x.std((0, 2)) ; x=64x128x128
d x.norm(dim=1) ; x=1024x1024
d x.norm(dim=0) ; x=1024x1024
d x.norm(3, 1) ; x=64x128x128
d x.norm(1, 1) ; x=64x128x128
d x.norm(float('inf'), (0, 2)) ; x=64x128x128
d x.norm() ; x=1000000
d x.amax(0) ; x=1024x1024
d x.amax(1) ; x=1024x1024
d x.amax((0, 2)) ; x=64x128x128
d x.max(1) ; x=1024x1024
d x.max(0) ; x=1024x1024
d x.max(1) ; x=100000x7
x.argmax(1) ; x=1024x1024
x.argmax(0) ; x=1024x1024
x.argmax(1) ; x=64x128x128
x.argmax() ; x=1000000
x.argmin(-1) ; x=100000x7
d x.logsumexp(1) ; x=1024x1024
d x.logsumexp(0) ; x=1024x1024
d x.logsumexp(1) ; x=64x128x128
m.any(1) ; m=bool:1024x1024
m.all(0) ; m=bool:1024x1024
m.sum(1) ; m=bool:1024x1024
m.sum(0) ; m=bool:1024x1024
m.sum() ; m=bool:1000000
i.sum(1) ; i=int99:1024x1024
i.sum(0) ; i=int99:1024x1024
i.amax(1) ; i=int99:1024x1024
i.argmax(1) ; i=int99:1024x1024
q.sum(1) ; q=int8:1024x1024
q.amax(1) ; q=int8:1024x1024
q.amax(0) ; q=int8:1024x1024
q.argmax(1) ; q=int8:1024x1024
L.count_nonzero(x, 1) ; x=1024x1024
x.float().sum(1) ; x=float16:1024x1024
x.sum(1) ; x=float16:1024x1024
x.sum(0) ; x=float16:1024x1024
x.bfloat16().sum(0) ; x=1024x1024
x.sum(0) ; x=float64:1024x1024
x.sum(1) ; x=float64:1024x1024
x.nansum(1) ; x=1024x1024
L.quantile(x, 0.3, 1) ; x=256x1024
L.mode(i, 1) ; i=int99:256x256
L.cov(x) ; x=64x4096
L.corrcoef(x) ; x=64x4096
L.renorm(x, 2, 0, 1.0) ; x=1024x1024
# ---- dtypes ----
x.half() ; x=1024x1024
x.bfloat16() ; x=1024x1024
x.double() ; x=1024x1024
x.int() ; x=1024x1024
x.long() ; x=1024x1024
x.to(L.int8) ; x=unit:1024x1024
x.to(L.uint8) ; x=unit:1024x1024
x.bool() ; x=1024x1024
i.float() ; i=int99:1024x1024
i.int() ; i=int99:1024x1024
q.float() ; q=int8:1024x1024
m.float() ; m=bool:1024x1024
m.long() ; m=bool:1024x1024
x.float() ; x=float16:1024x1024
q + q ; q=int8:1024x1024
q * q ; q=int8:1024x1024
q // 3 ; q=int8:1024x1024
q % 7 ; q=int8:1024x1024
q > 3 ; q=int8:1024x1024
i * i ; i=int99:1024x1024
i // 7 ; i=int99:1024x1024
i % 7 ; i=int99:1024x1024
i // j ; i=int99:1024x1024, j=int9:1024x1
L.floor_divide(i, i + 1) ; i=int99:1024x1024
L.remainder(x, 0.7) ; x=1024x1024
L.fmod(x, y) ; x=1024x1024, y=1024x1024
x // y ; x=1024x1024, y=1024x1024
m & ~m ; m=bool:1024x1024
i & 7 ; i=int99:1024x1024
i << 2 ; i=int99:1024x1024
i > j ; i=int99:1024x1024, j=int99:1024x1024
x * y + 1 ; x=float16:1024x1024, y=float16:1024x1024
x.exp() ; x=float16:1024x1024
x.exp() ; x=float64:1024x1024
x.tanh() ; x=float64:1024x1024
x.pow(y) ; x=unit:1024x1024, y=1024x1024
x.pow(2.5) ; x=unit:1024x1024
x ** 3 ; x=1024x1024
i ** 3 ; i=int99:1024x1024
# ---- random ----
L.randn(1024, 1024) + x ; x=1
L.rand(1024, 1024) + x ; x=1
L.randint(0, 100, (1024, 1024)) + i ; i=int9:1
L.randint(0, 128, (1024, 1024)) + i ; i=int9:1
L.bernoulli(x) ; x=unit:1024x1024
L.multinomial(x, 1) ; x=unit:1024x1000
L.multinomial(x, 64, replacement=True) ; x=unit:64x1000
L.multinomial(x, 64) ; x=unit:64x1000
L.randperm(100000) + i ; i=int9:1
L.normal(x, 1.0) ; x=1024x1024
L.poisson(x) ; x=unit:1024x1024
x.clone().exponential_() ; x=1024x1024
x.clone().normal_() ; x=1024x1024
x.clone().uniform_() ; x=1024x1024
d F.dropout(x, 0.1) ; x=1024x1024
d F.dropout(x, 0.5) ; x=1024x1024
d F.dropout2d(x, 0.1) ; x=8x64x56x56
d F.alpha_dropout(x, 0.1, True) ; x=1024x1024
d F.feature_alpha_dropout(x, 0.1, True) ; x=8x64x56x56
d F.rrelu(x, training=True) ; x=1024x1024
# ---- attention ----
d F.scaled_dot_product_attention(q, k, v) ; q=4x8x256x64, k=4x8x256x64, v=4x8x256x64
d F.scaled_dot_product_attention(q, k, v, is_causal=True) ; q=4x8x256x64, k=4x8x256x64, v=4x8x256x64
d F.scaled_dot_product_attention(q, k, v, attn_mask=m) ; q=4x8x256x64, k=4x8x256x64, v=4x8x256x64, m=bool:256x256
d F.scaled_dot_product_attention(q, k, v, attn_mask=m) ; q=4x8x256x64, k=4x8x256x64, v=4x8x256x64, m=bool:4x1x1x256
F.scaled_dot_product_attention(q, k, v, attn_mask=m) ; q=4x8x256x64, k=4x8x256x64, v=4x8x256x64, m=float32:256x256
d F.scaled_dot_product_attention(q, k, v, enable_gqa=True) ; q=4x8x256x64, k=4x2x256x64, v=4x2x256x64
d F.scaled_dot_product_attention(q, k, v) ; q=4x8x100x33, k=4x8x100x33, v=4x8x100x33
d F.scaled_dot_product_attention(q, k, v) ; q=64x4x7x16, k=64x4x7x16, v=64x4x7x16
d F.scaled_dot_product_attention(q, k, v) ; q=4x8x1x64, k=4x8x1024x64, v=4x8x1024x64
F.scaled_dot_product_attention(q, k, v) ; q=float64:4x8x128x64, k=float64:4x8x128x64, v=float64:4x8x128x64
F.scaled_dot_product_attention(q, k, v) ; q=float16:4x8x128x64, k=float16:4x8x128x64, v=float16:4x8x128x64
F.scaled_dot_product_attention(q, k, v, dropout_p=0.1) ; q=4x8x256x64, k=4x8x256x64, v=4x8x256x64
d F.linear(x, w, b) ; x=1024x768, w=768x768, b=768
d F.linear(x, w, b) ; x=1x768, w=768x768, b=768
d F.linear(x, w, b) ; x=100x33, w=7x33, b=7
d F.linear(x, w, b) ; x=16384x3, w=64x3, b=64
d F.linear(x, w, b) ; x=16384x64, w=3x64, b=3
# ---- small, odd and rare ones ----
d F.unfold(x, 3, padding=1) ; x=1x3x32x32
d x.unfold(1, 8, 4) ; x=64x128
L.kthvalue(x, 5, 1)[0] ; x=1024x100
L.kthvalue(x, 5, 1)[0] ; x=16x10000
d L.median(x, 1)[0] ; x=1024x100
L.median(x) ; x=1000001
L.nanmedian(x, 1)[0] ; x=256x1000
L.mode(i, 1)[0] ; i=int9:1000x100
L.quantile(x, 0.5) ; x=100000
L.quantile(x, p, 1) ; x=100x1000, p=unit:3
L.nanquantile(x, 0.5, 1) ; x=100x1000
L.histc(x, 10) ; x=1000
L.bincount(i) ; i=int10:1000
L.unique(i) ; i=int1000:100000
L.unique(i, return_inverse=True, return_counts=True) ; i=int1000:10000
L.unique(i, dim=0) ; i=int3:1000x4
L.unique_consecutive(i) ; i=int3:100000
d L.cdist(x, y) ; x=32x8, y=32x8
d L.cdist(x, y, p=float('inf')) ; x=256x64, y=256x64
d F.pdist(x) ; x=200x16
d x.index_put((i,), y, accumulate=True) ; x=1000x16, i=int1000:5000, y=5000x16
d F.interpolate(x, size=7, mode='nearest') ; x=64x10x13
d F.interpolate(x, size=(7, 9), mode='nearest-exact') ; x=8x16x13x13
d F.interpolate(x, size=(299, 299), mode='bilinear', align_corners=False) ; x=2x3x224x224
d F.interpolate(x, size=(64, 64), mode='bicubic', antialias=True) ; x=2x3x128x128
d F.grid_sample(x, g.tanh(), align_corners=True, padding_mode='border') ; x=2x3x28x28, g=2x28x28x2
d L.einsum('bhqd,bkhd->bhqk', x, y) ; x=2x4x16x32, y=2x16x4x32
d L.einsum('ijkl,klm->ijm', x, y) ; x=16x16x16x16, y=16x16x16
d L.einsum('bcij,bdij->bcd', x, y) ; x=8x32x16x16, y=8x32x16x16
d L.bmm(x, y) ; x=100x4x4, y=100x4x4
d L.bmm(x, y) ; x=512x16x16, y=512x16x16
d L.baddbmm(z, x, y) ; x=64x16x16, y=64x16x16, z=64x16x16
d L.cross(x, y, dim=0) ; x=3x10000, y=3x10000
d L.renorm(x, 2, 0, 1.0) ; x=64x64
d L.kron(x, y) ; x=64x64, y=8x8
d L.logcumsumexp(x, 1) ; x=100x100
d x.cumprod(1) ; x=1000x30
d x.cumsum(1) ; x=1000x30
d x.cumsum(0) ; x=1000x1000
x.cummax(1)[0] ; x=1000x30
x.cummax(0)[0] ; x=1000x1000
x.cummin(1)[1] ; x=100x1000
L.diff(x) ; x=1000x1000
L.diff(x, dim=0) ; x=1000x1000
L.gradient(x)[0] ; x=1000x1000
L.trapezoid(x) ; x=1000x1000
L.cumulative_trapezoid(x) ; x=1000x1000
d L.roll(x, 3, 1) ; x=100x100
d L.rot90(x, 2) ; x=100x100
d L.repeat_interleave(x, 2, 1) ; x=100x100
L.combinations(x, 3) ; x=40
d L.cartesian_prod(x, y, z) ; x=30, y=30, z=30
q + 1 ; q=int8:1000
q.abs() ; q=int8:1024x1024
q.clamp(-5, 5) ; q=int8:1024x1024
q.sum() ; q=int8:1024x1024
(q.short() * 3).int() ; q=int8:1024x1024
q.short() // 3 ; q=int8:1024x1024
q.cumsum(1) ; q=int8:1024x1024
q.sort(1)[0] ; q=int8:1024x256
q.float() @ q.float().T ; q=int8:256x256
i.bitwise_xor(3) ; i=int99:1024x1024
i.max() ; i=int99:1024x1024
i.argmax() ; i=int99:1024x1024
i.float().mean() ; i=int99:1024x1024
i.sort(1)[0] ; i=int99:1024x256
i.topk(5, 1)[0] ; i=int99:1024x256
d g.sin() ; g=float64:1024x256
d g.log() ; g=unit:1024x256
d g.softmax(1) ; g=float64:1024x256
d g @ g.T ; g=float64:256x256
d g.sum(1) ; g=float64:1024x256
d g.cumsum(1) ; g=float64:1024x256
d g.std(1) ; g=float64:1024x256
d F.conv2d(g, h, padding=1) ; g=float64:2x16x28x28, h=float64:16x16x3x3
d F.batch_norm(x, None, None, None, None, True) ; x=8x3x32x32
d F.group_norm(x, 32) ; x=2x128x16x16
d F.group_norm(x, 1, w, b) ; x=4x64x64, w=64, b=64
d F.instance_norm(x) ; x=2x16x128
d F.layer_norm(x, (64, 32), w) ; x=100x64x32, w=64x32
d F.avg_pool2d(x, 5, 1, 2) ; x=8x32x32x32
d F.avg_pool2d(x, 3, 2) ; x=2x16x15x15
d F.max_pool2d(x, 3, 2) ; x=2x16x15x15
d F.max_pool1d(x, 2) ; x=8x16x100
d F.adaptive_avg_pool2d(x, (3, 3)) ; x=4x16x10x10
d F.adaptive_max_pool2d(x, (3, 3)) ; x=4x16x10x10
d F.lp_pool1d(x, 2, 3, 2) ; x=8x16x100
d F.lp_pool2d(x, 1.5, 2) ; x=8x16x32x32
d F.conv3d(x, w, padding=1) ; x=1x8x8x16x16, w=8x8x3x3x3
d F.conv3d(x, w, stride=2) ; x=1x3x16x56x56, w=16x3x3x7x7
d F.conv1d(x, w, padding=8, dilation=8) ; x=4x32x1000, w=32x32x3
d F.conv2d(x, w, padding=12, dilation=12) ; x=2x64x33x33, w=32x64x3x3
d F.conv1d(x, w, stride=160) ; x=4x1x16000, w=64x1x400
d F.conv1d(x, w, groups=32, padding=15) ; x=4x32x500, w=32x1x31
d F.conv2d(x, w, stride=2, padding=1, groups=64) ; x=2x64x28x28, w=64x1x3x3
d F.conv2d(x, w, stride=4, padding=2) ; x=2x3x224x224, w=64x3x11x11
d F.conv_transpose1d(x, w, stride=4, padding=2) ; x=2x64x200, w=64x32x8
d F.ctc_loss(F.log_softmax(x, -1), t + 1, n + 40, m + 10) ; x=50x4x20, t=int19:4x12, n=int1:4, m=int1:4
d F.embedding_bag(i, w, mode='sum') ; i=int100:64x8, w=100x16
d F.cosine_similarity(x[:, None], y[None], -1) ; x=100x64, y=100x64
d F.softplus(x) ; x=1024x256
d F.mish(x) ; x=1024x256
d F.gelu(x) ; x=1024x256
d F.silu(x.bfloat16()) ; x=1024x256
d F.gelu(x.bfloat16()) ; x=1024x256
d F.softmax(x.bfloat16(), -1) ; x=1024x256
d F.layer_norm(x.bfloat16(), (256,)) ; x=1024x256
x.bfloat16().sin() ; x=1024x1024
x.bfloat16().exp() ; x=1024x1024
x.bfloat16().tanh() ; x=1024x1024
x.bfloat16().sigmoid() ; x=1024x1024
x.bfloat16().log() ; x=unit:1024x1024
x.bfloat16().sqrt() ; x=unit:1024x1024
x.bfloat16().rsqrt() ; x=unit:1024x1024
x.bfloat16() + 1 ; x=1024x1024
x.bfloat16() * y.bfloat16() ; x=1024x1024, y=1024x1024
x.bfloat16().pow(2) ; x=1024x1024
x.bfloat16().erf() ; x=1024x1024
x.half().sin() ; x=1024x1024
x.half().tanh() ; x=1024x1024
d x.erfinv() ; x=unit:1024x1024
x.erfc() ; x=1024x1024
x.lgamma() ; x=unit:1024x1024
x.digamma() ; x=unit:1024x1024
L.special.i0(x) ; x=1024x1024
L.special.ndtri(x) ; x=unit:1024x1024
L.special.log_ndtr(x) ; x=1024x1024
x.logit() ; x=unit:1024x1024
L.xlogy(x, y) ; x=unit:1024x1024, y=unit:1024x1024
L.logaddexp(x, y) ; x=1024x1024, y=1024x1024
L.hypot(x, y) ; x=1024x1024, y=1024x1024
L.atan2(x, y) ; x=1024x1024, y=1024x1024
L.nextafter(x, y) ; x=1024x1024, y=1024x1024
L.ldexp(x, i) ; x=1024x1024, i=int9:1024x1024
L.frexp(x)[0] ; x=1024x1024
L.heaviside(x, y) ; x=1024x1024, y=1024x1024
L.nan_to_num(x) ; x=1024x1024
L.isclose(x, y) ; x=1024x1024, y=1024x1024
L.allclose(x, x) ; x=1024x1024
L.equal(x, x) ; x=1024x1024
L.equal(x, y) ; x=1024x1024, y=1024x1024
x.all() ; x=1024x1024
x.aminmax() ; x=1024x1024
L.std(x, 0) ; x=1024x1024
x.norm(dim=1) ; x=1024x1024
x.norm(p=1, dim=0) ; x=1024x1024
L.logsumexp(x, 0) ; x=1024x1024
L.prod(x, 1) ; x=1024x1024
L.cov(x) ; x=10x1000
L.triu_indices(100, 100) + i ; i=int9:1
L.tril_indices(30, 30) + i ; i=int9:1
L.block_diag(x, y) ; x=30x40, y=50x20
L.searchsorted(s, x) ; s=sorted:10, x=unit:1000
x.masked_select(x > 0) ; x=100x100
x.nonzero() ; x=100x100
L.take_along_dim(x, x.argsort(1), 1) ; x=100x100
x.argsort(1) ; x=1000x1000
x.sort(0)[0] ; x=1000x1000
x.topk(10, 1)[0] ; x=100x10000
x.topk(50, 1)[0] ; x=16x50000
x.msort() ; x=1000x100
L.multinomial(x, 1) ; x=unit:16x50000
x.flip(0, 1) ; x=1000x1000
x.view(100, 100, 100).permute(2, 0, 1).contiguous() ; x=1000000
x.view(100, 100, 100).permute(0, 2, 1).contiguous() ; x=1000000
x.transpose(1, 2).contiguous() ; x=32x128x8x64
x.movedim(0, -1) + 1 ; x=16x256x256
L.hstack([x, y]) ; x=1000x500, y=1000x500
L.dstack([x, y]) ; x=500x500, y=500x500
L.vander(x) ; x=100
d L.scatter_reduce(x, 0, i, y, 'prod') ; x=1000, i=int1000:10000, y=10000
d L.scatter_reduce(x, 0, i, y, 'amin') ; x=1000, i=int1000:10000, y=10000
d L.index_reduce(x, 0, i, y, 'prod') ; x=100x16, i=int100:1000, y=1000x16
d L.segment_reduce(x, 'sum', lengths=n * 0 + 10) ; x=1000x16, n=int1:100
d F.triplet_margin_loss(x, y, z) ; x=64x32, y=64x32, z=64x32
d F.huber_loss(x, y) ; x=64x32, y=64x32
d F.cross_entropy(x, t) ; x=64x10, t=int10:64
d F.nll_loss(x, t) ; x=64x10, t=int10:64
F.nll_loss(x, t) ; x=4096x50000, t=int50000:4096
d F.one_hot(i, 100).float() @ w ; i=int100:1000, w=100x64
L.bucketize(x, s) ; x=1000, s=sorted:10
"""
