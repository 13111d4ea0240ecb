// RMSNorm of the rows of float or double tensors on the CPU, with or without a residual sum in front, with gradients:
// operators `diarnorm_native::rms_norm` and `diarnorm_native::add_rms_norm` for PyTorch. See native.py.
//
// Arithmetic is float32, or float64 where an input is. The order of every sum depends on `dim` alone: a row gives the
// same bits alone, in a batch, and on any number of threads. Rows whose mask is false are not read; they give 0.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <tuple>

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

// OpenMP's entry in the library that torch has loaded; null where torch was built without it.
extern "C" __attribute__((weak)) void GOMP_parallel(void (*body)(void*), void* data, unsigned num_threads, unsigned flags);

namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

constexpr int LANES = 64;                     // running sums per row: several of the widest vectors side by side
constexpr int64_t BLOCK_ROWS = 128;           // rows per piece of work, and per partial gradient of the weight
constexpr int64_t THREADS_FROM = 1 << 15;     // numbers from which on a second thread pays

template <typename Term>
inline auto sum(int64_t dim, Term term) {
    decltype(term(0)) sums[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        for (int lane = 0; lane < LANES; lane++) sums[lane] += term(i + lane);
    for (int lane = 0; i + lane < dim; lane++) sums[lane] += term(i + lane);
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) sums[lane] += sums[lane + half];
    return sums[0];
}

// Calls work(block, first row, row after the last) for all blocks of rows, on torch's threads where there is enough to do.
template <typename Work>
void for_blocks(int64_t rows, int64_t dim, const Work& work) {
    struct Shared { const Work& work; int64_t rows; std::atomic<int64_t> next; } shared{work, rows, {0}};
    auto take = [](void* data) {
        auto& s = *static_cast<Shared*>(data);
        for (;;) {
            int64_t block = s.next.fetch_add(1, std::memory_order_relaxed), first = block * BLOCK_ROWS;
            if (first >= s.rows) return;
            s.work(block, first, std::min(first + BLOCK_ROWS, s.rows));
        }
    };
    bool many = rows > BLOCK_ROWS && rows * dim >= THREADS_FROM && at::get_num_threads() > 1;
    if (many && GOMP_parallel) GOMP_parallel(take, &shared, at::get_num_threads(), 0);
    else take(&shared);
}

template <typename T>
T* out(const Tensor& x) { return x.defined() ? x.mutable_data_ptr<T>() : nullptr; }

template <typename T>
const T* in(const Tensor& x) { return x.defined() ? x.const_data_ptr<T>() : nullptr; }

const bool* in(const MaybeTensor& mask) { return mask.has_value() ? mask->const_data_ptr<bool>() : nullptr; }

// y = n * weight with n = x * rstd; x is first replaced by r = residual + alpha * x where `r` is defined.
template <typename T>
void forward_rows(const Tensor& y_out, const Tensor& r_out, const Tensor& rstd_out, const Tensor& x_in,
                  const Tensor& residual_in, const Tensor& weight_in, const MaybeTensor& mask_in, T alpha, T eps) {
    const int64_t dim = weight_in.numel(), rows = x_in.numel() / dim;
    T *y_all = out<T>(y_out), *r_all = out<T>(r_out), *rstd = out<T>(rstd_out);
    const T *x_all = in<T>(x_in), *residual_all = in<T>(residual_in), *__restrict weight = in<T>(weight_in);
    const bool* mask = in(mask_in);
    for_blocks(rows, dim, [=](int64_t, int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++) {
            T *__restrict y = y_all + row * dim, *__restrict r = r_all + (r_all ? row * dim : 0), scale = 0;
            const T* x = x_all + row * dim;
            if (mask && !mask[row]) {
                std::memset(y, 0, dim * sizeof(T));
                if (r_all) std::memset(r, 0, dim * sizeof(T));
            } else {
                if (r_all) {
                    const T *__restrict step = x, *__restrict residual = residual_all + row * dim;
                    for (int64_t i = 0; i < dim; i++) r[i] = residual[i] + alpha * step[i];
                    x = r;
                }
                scale = 1 / std::sqrt(sum(dim, [=](int64_t i) { return x[i] * x[i]; }) / dim + eps);
                for (int64_t i = 0; i < dim; i++) y[i] = x[i] * scale * weight[i];
            }
            if (rstd) rstd[row] = scale;
        }
    });
}

// With g = dy * weight: dx = rstd * (g - n * mean(g * n)), plus dr; dweight = sum over rows of dy * n, a part per block.
template <typename T>
void backward_rows(const Tensor& dx_out, const Tensor& dresidual_out, const Tensor& parts_out, const Tensor& dy_in,
                   const Tensor& dr_in, const Tensor& x_in, const Tensor& weight_in, const Tensor& rstd_in,
                   const MaybeTensor& mask_in, T alpha) {
    const int64_t dim = weight_in.numel(), rows = x_in.numel() / dim;
    T *dx_all = out<T>(dx_out), *dresidual_all = out<T>(dresidual_out), *parts = out<T>(parts_out);
    const T *dy_all = in<T>(dy_in), *dr_all = in<T>(dr_in), *x_all = in<T>(x_in), *rstd = in<T>(rstd_in);
    const T* __restrict weight = in<T>(weight_in);
    const bool* mask = in(mask_in);
    for_blocks(rows, dim, [=](int64_t block, int64_t first, int64_t last) {
        T* __restrict part = parts + block * dim;
        std::memset(part, 0, dim * sizeof(T));
        for (int64_t row = first; row < last; row++) {
            T* __restrict dx = dx_all + row * dim;
            if (mask && !mask[row]) {
                std::memset(dx, 0, dim * sizeof(T));
                if (dresidual_all) std::memset(dresidual_all + row * dim, 0, dim * sizeof(T));
                continue;
            }
            const T *__restrict dy = dy_all + row * dim, *__restrict x = x_all + row * dim, scale = rstd[row];
            const T pull = scale * (scale * (sum(dim, [=](int64_t i) { return dy[i] * weight[i] * x[i]; }) / dim));
            for (int64_t i = 0; i < dim; i++) {
                const T n = x[i] * scale;
                part[i] += dy[i] * n;
                dx[i] = dy[i] * weight[i] * scale - n * pull;
            }
            if (dresidual_all) {
                T* __restrict dresidual = dresidual_all + row * dim;
                const T* __restrict dr = dr_all + row * dim;
                for (int64_t i = 0; i < dim; i++) {
                    dresidual[i] = dx[i] + dr[i];
                    dx[i] = alpha * dresidual[i];
                }
            }
        }
    });
}

template <typename Run>
void by_dtype(const Tensor& x, const Run& run) {
    if (x.scalar_type() == at::kFloat) run(float());
    else run(double());
}

// Contiguous, without the detour over the dispatcher that at::empty_like takes.
Tensor empty(const Tensor& like, at::IntArrayRef sizes) {
    return at::detail::empty_cpu(sizes, like.scalar_type(), std::nullopt, std::nullopt, std::nullopt, std::nullopt);
}

// Results of one forward pass; `r` and `rstd` are undefined where they were not asked for.
struct Normed { Tensor y, r, rstd; };

Normed forward(const Tensor& x, const MaybeTensor& residual, const Tensor& weight, double eps, double alpha,
               const MaybeTensor& mask, bool keep) {
    Normed made{empty(x, x.sizes()), {}, {}};
    if (residual) made.r = empty(x, x.sizes());
    if (keep) made.rstd = empty(x, {x.numel() / weight.numel()});
    by_dtype(x, [&](auto t) {
        forward_rows<decltype(t)>(made.y, made.r, made.rstd, x, residual.value_or(Tensor()), weight, mask, alpha, eps);
    });
    return made;
}

struct Function : torch::autograd::Function<Function> {
    using Context = torch::autograd::AutogradContext;
    using Tensors = torch::autograd::variable_list;

    // Without `residual` there is no second result.
    static Tensors forward(Context* context, const Tensor& x, const MaybeTensor& residual, const Tensor& weight,
                           double eps, double alpha, const MaybeTensor& mask) {
        at::AutoDispatchBelowADInplaceOrView below;
        Normed made = ::forward(x, residual, weight, eps, alpha, mask, true);
        context->save_for_backward({residual ? made.r : x, weight, made.rstd, mask.value_or(Tensor())});
        context->saved_data["alpha"] = alpha;
        return residual ? Tensors{made.y, made.r} : Tensors{made.y};
    }

    static Tensors backward(Context* context, Tensors gradients) {
        TORCH_CHECK(!at::GradMode::is_enabled(), "RMSNorm on the CPU has no second derivative: use backend='eager'");
        auto saved = context->get_saved_variables();
        const Tensor &x = saved[0], &weight = saved[1], dy = gradients[0].contiguous();
        const MaybeTensor mask = saved[3].defined() ? MaybeTensor(saved[3]) : std::nullopt;
        Tensor dx = empty(x, x.sizes()), dr, dresidual;
        if (gradients.size() == 2) {
            dr = gradients[1].contiguous();
            dresidual = empty(x, x.sizes());
        }
        const int64_t rows = x.numel() / weight.numel();
        Tensor parts = empty(x, {(rows + BLOCK_ROWS - 1) / BLOCK_ROWS, weight.numel()});
        const double alpha = context->saved_data["alpha"].toDouble();
        by_dtype(x, [&](auto t) {
            backward_rows<decltype(t)>(dx, dresidual, parts, dy, dr, x, weight, saved[2], mask, alpha);
        });
        Tensor dweight = parts.size(0) == 1 ? parts[0] : parts.sum(0);
        return {dx, dresidual, dweight, Tensor(), Tensor(), Tensor()};
    }
};

at::ScalarType width(const Tensor& a, const Tensor& b) {
    return at::promote_types(at::promote_types(a.scalar_type(), b.scalar_type()), at::kFloat);
}

// What keeps memory safe; Python says it in words.
void check(const Tensor& x, const Tensor& weight, double eps, const MaybeTensor& mask) {
    TORCH_CHECK_VALUE(eps > 0 && weight.is_cpu() && weight.dim() == 1 && weight.numel() > 0 && x.dim() > 0 &&
                      x.size(-1) == weight.numel() && x.is_floating_point() && weight.is_floating_point(),
                      "x and weight do not fit together");
    TORCH_CHECK_VALUE(!mask.has_value() || (mask->is_cpu() && mask->scalar_type() == at::kBool &&
                      mask->sizes() == x.sizes().slice(0, x.dim() - 1)), "x and mask do not fit together");
}

Tensor as(const Tensor& x, at::ScalarType dtype) { return x.scalar_type() == dtype ? x : x.to(dtype); }

MaybeTensor contiguous(const MaybeTensor& mask) {
    return mask.has_value() ? MaybeTensor(mask->contiguous()) : std::nullopt;
}

bool learns(std::initializer_list<std::reference_wrapper<const Tensor>> inputs) {
    if (!at::GradMode::is_enabled()) return false;
    for (const Tensor& input : inputs)
        if (input.requires_grad()) return true;
    return false;
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, const MaybeTensor& mask) {
    check(x, weight, eps, mask);
    const auto dtype = width(x, weight);
    const Tensor wide = as(x, dtype).contiguous(), scale = as(weight, dtype).contiguous();
    if (learns({x, weight}))
        return as(Function::apply(wide, MaybeTensor(), scale, eps, 1.0, contiguous(mask))[0], x.scalar_type());
    at::AutoDispatchBelowADInplaceOrView below;
    return as(forward(wide, std::nullopt, scale, eps, 1.0, contiguous(mask), false).y, x.scalar_type());
}

Tensor rms_norm_of_all(const Tensor& x, const Tensor& weight, double eps) {
    return rms_norm(x, weight, eps, std::nullopt);
}

// All of one dtype, float or double.
std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps,
                                        double alpha, const MaybeTensor& mask) {
    check(x, weight, eps, mask);
    TORCH_CHECK_VALUE(residual.is_cpu() && residual.sizes() == x.sizes() && x.scalar_type() == width(x, residual) &&
                      weight.scalar_type() == x.scalar_type() && residual.scalar_type() == x.scalar_type(),
                      "x, residual and weight do not fit together");
    const Tensor step = x.contiguous(), stream = residual.contiguous(), scale = weight.contiguous();
    if (learns({x, residual, weight})) {
        auto results = Function::apply(step, MaybeTensor(stream), scale, eps, alpha, contiguous(mask));
        return {results[0], results[1]};
    }
    at::AutoDispatchBelowADInplaceOrView below;
    Normed made = forward(step, stream, scale, eps, alpha, contiguous(mask), false);
    return {made.y, made.r};
}

}  // namespace

TORCH_LIBRARY(diarnorm_native, library) {
    library.def("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor");
    library.def("rms_norm.mask(Tensor x, Tensor weight, float eps, Tensor? mask) -> Tensor");
    library.def("add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps, float alpha, Tensor? mask=None)"
                " -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(diarnorm_native, CPU, library) {
    library.impl("rms_norm", rms_norm_of_all);
    library.impl("rms_norm.mask", rms_norm);
    library.impl("add_rms_norm", add_rms_norm);
}

TORCH_LIBRARY_IMPL(diarnorm_native, AutogradCPU, library) {
    library.impl("rms_norm", rms_norm_of_all);
    library.impl("rms_norm.mask", rms_norm);
    library.impl("add_rms_norm", add_rms_norm);
}
