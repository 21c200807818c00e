// Sufficient statistics of tasks, and their posterior under one Gaussian component: one thread per task.
//
// Compiled at run time with the macros
//   stored     double or float: the type of statistics and rows; all arithmetic is in double
//   D          number of columns of a task's system
//   INTERCEPT  1 if the last column is constant and not stored with the rows, else 0
//   BLOCK      block size of the Cholesky factorisation
//   TILE       number of tasks in the shared memory of a block
//   GROUP      number of tasks whose products a block writes at once
//
// The statistics of T tasks are one array (E, T), E = (D + 1)(D + 2) / 2: the lower triangle, row by row, of the products
// of the D columns and the target.  Row D is X'y, then y'y.  Neighbouring threads read neighbouring tasks.  In shared memory,
// element e of a task is at e * TILE + (index of the task in the tile).
//
// Systems are padded with rows of the identity to a multiple of B and factored in blocks of B x B.  A block stays in
// registers, so each element is used B times after it is loaded.

// For loops over the elements of a block: an array that is indexed by a variable would not be kept in registers.
#define UNROLL _Pragma("unroll")
#define PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(n) PRAGMA(unroll n)
typedef double real;
constexpr int B = BLOCK;
constexpr int P = (D + B - 1) / B * B;
constexpr int N_BLOCKS = P / B;
constexpr int SYSTEM = P * (P + 1) / 2;   // followed by P elements: the right-hand side, later its solution
constexpr int PRODUCTS = (D + 1) * (D + 2) / 2;

__device__ __forceinline__ constexpr int at(int i, int j) { return i * (i + 1) / 2 + j; }

// Write F = gram + ridge and the right-hand side X'(y - X b) to shared memory; return ||y - X b||^2.
__device__ real load_system(const stored *__restrict__ products, long long T, long long t,
                            const real *__restrict__ ridge, const real *__restrict__ b, real *a) {
    real *right = a + SYSTEM * TILE;
    // These loads are independent of each other.  Shared memory limits a multiprocessor to four warps, so many loads must be in
    // flight at once.
    UNROLL_BY(105) for (int e = 0; e < at(D, 0); ++e) a[e * TILE] = products[e * T + t];
    UNROLL for (int i = 0; i < D; ++i) right[i * TILE] = products[at(D, i) * T + t];
    real square = products[at(D, D) * T + t];
    UNROLL for (int i = D; i < P; ++i) {
        right[i * TILE] = 0;
        UNROLL_BY(4) for (int j = 0; j <= i; ++j) a[at(i, j) * TILE] = i == j ? real(1) : real(0);
    }
    UNROLL_BY(1) for (int I = 0; I < N_BLOCKS; ++I) {
        real fitted[B] = {};
        UNROLL_BY(20) for (int j = 0; j < D; ++j) {
            const real x = b[j];
            UNROLL for (int i = 0; i < B; ++i) fitted[i] += a[at(max(I * B + i, j), min(I * B + i, j)) * TILE] * x;
        }
        UNROLL for (int i = 0; i < B; ++i) {
            const int row = I * B + i;
            if (row < D) {
                const real cross = right[row * TILE];
                right[row * TILE] = cross - fitted[i];
                square -= b[row] * (2 * cross - fitted[i]);
            }
        }
    }
    UNROLL_BY(70) for (int e = 0; e < at(D, 0); ++e) a[e * TILE] += ridge[e];
    return square;
}

// Replace F by its Cholesky factor C, with inverted diagonal elements, and the right-hand side r by z = C^-1 r.
__device__ real factor(real *a) {
    real log_determinant = 0;
    UNROLL_BY(1) for (int J = 0; J < N_BLOCKS; ++J) {
        real l[B][B], z[B];
        UNROLL for (int i = 0; i < B; ++i) {
            z[i] = a[(SYSTEM + J * B + i) * TILE];
            UNROLL for (int j = 0; j <= i; ++j) l[i][j] = a[at(J * B + i, J * B + j) * TILE];
        }
        UNROLL_BY(5) for (int k = 0; k < J * B; ++k) {
            real x[B];
            const real w = a[(SYSTEM + k) * TILE];
            UNROLL for (int i = 0; i < B; ++i) x[i] = a[at(J * B + i, k) * TILE];
            UNROLL for (int i = 0; i < B; ++i) {
                z[i] -= x[i] * w;
                UNROLL for (int j = 0; j <= i; ++j) l[i][j] -= x[i] * x[j];
            }
        }
        real pivots = 1;
        UNROLL for (int j = 0; j < B; ++j) {
            UNROLL for (int m = 0; m < j; ++m) l[j][j] -= l[j][m] * l[j][m];
            pivots *= l[j][j];
            l[j][j] = real(1) / sqrt(l[j][j]);
            UNROLL for (int i = j + 1; i < B; ++i) {
                UNROLL for (int m = 0; m < j; ++m) l[i][j] -= l[i][m] * l[j][m];
                l[i][j] *= l[j][j];
            }
            UNROLL for (int m = 0; m < j; ++m) z[j] -= l[j][m] * z[m];
            z[j] *= l[j][j];
        }
        log_determinant += log(pivots);
        UNROLL for (int i = 0; i < B; ++i) {
            a[(SYSTEM + J * B + i) * TILE] = z[i];
            UNROLL for (int j = 0; j <= i; ++j) a[at(J * B + i, J * B + j) * TILE] = l[i][j];
        }
        UNROLL_BY(1) for (int I = J + 1; I < N_BLOCKS; ++I) {
            real s[B][B];
            UNROLL for (int i = 0; i < B; ++i)
                UNROLL for (int j = 0; j < B; ++j) s[i][j] = a[at(I * B + i, J * B + j) * TILE];
            UNROLL_BY(5) for (int k = 0; k < J * B; ++k) {
                real x[B], y[B];
                UNROLL for (int i = 0; i < B; ++i) {
                    x[i] = a[at(I * B + i, k) * TILE];
                    y[i] = a[at(J * B + i, k) * TILE];
                }
                UNROLL for (int i = 0; i < B; ++i)
                    UNROLL for (int j = 0; j < B; ++j) s[i][j] -= x[i] * y[j];
            }
            UNROLL for (int i = 0; i < B; ++i)
                UNROLL for (int j = 0; j < B; ++j) {
                    UNROLL for (int m = 0; m < j; ++m) s[i][j] -= s[i][m] * l[j][m];
                    s[i][j] *= l[j][j];
                    a[at(I * B + i, J * B + j) * TILE] = s[i][j];
                }
        }
    }
    return log_determinant;
}

// Return z'z = r'F^-1 r.
__device__ real explained(const real *a) {
    real total = 0;
    for (int i = 0; i < P; ++i) total += a[(SYSTEM + i) * TILE] * a[(SYSTEM + i) * TILE];
    return total;
}

// Replace z by u = C^-T z.
__device__ void solve_back(real *a) {
    UNROLL_BY(1) for (int J = N_BLOCKS - 1; J >= 0; --J) {
        real u[B];
        UNROLL for (int j = 0; j < B; ++j) u[j] = a[(SYSTEM + J * B + j) * TILE];
        UNROLL_BY(5) for (int k = (J + 1) * B; k < P; ++k) {
            const real w = a[(SYSTEM + k) * TILE];
            UNROLL for (int j = 0; j < B; ++j) u[j] -= a[at(k, J * B + j) * TILE] * w;
        }
        UNROLL for (int j = B - 1; j >= 0; --j) {
            UNROLL for (int m = j + 1; m < B; ++m) u[j] -= a[at(J * B + m, J * B + j) * TILE] * u[m];
            u[j] *= a[at(J * B + j, J * B + j) * TILE];
            a[(SYSTEM + J * B + j) * TILE] = u[j];
        }
    }
}

// Replace C by M = C^-1.
__device__ void invert_factor(real *a) {
    UNROLL_BY(1) for (int J = N_BLOCKS - 1; J >= 0; --J) {
        real l[B][B];
        UNROLL for (int i = 0; i < B; ++i)
            UNROLL for (int j = 0; j <= i; ++j) l[i][j] = a[at(J * B + i, J * B + j) * TILE];
        // diagonal block: its diagonal elements are already inverted
        UNROLL for (int j = 0; j < B; ++j)
            UNROLL for (int i = j + 1; i < B; ++i) {
                real total = l[i][j] * l[j][j];
                UNROLL for (int m = j + 1; m < i; ++m) total += l[i][m] * l[m][j];
                l[i][j] = -total * l[i][i];
            }
        UNROLL_BY(1) for (int I = N_BLOCKS - 1; I > J; --I) {
            real s[B][B] = {};
            UNROLL_BY(5) for (int k = (J + 1) * B; k < I * B; ++k) {
                real x[B], y[B];
                UNROLL for (int i = 0; i < B; ++i) {
                    x[i] = a[at(I * B + i, k) * TILE];
                    y[i] = a[at(k, J * B + i) * TILE];
                }
                UNROLL for (int i = 0; i < B; ++i)
                    UNROLL for (int j = 0; j < B; ++j) s[i][j] += x[i] * y[j];
            }
            UNROLL for (int k = 0; k < B; ++k) {
                real y[B];
                UNROLL for (int j = 0; j < B; ++j) y[j] = a[at(I * B + k, J * B + j) * TILE];
                UNROLL for (int i = k; i < B; ++i) {
                    const real x = a[at(I * B + i, I * B + k) * TILE];
                    UNROLL for (int j = 0; j < B; ++j) s[i][j] += x * y[j];
                }
            }
            UNROLL for (int i = 0; i < B; ++i)
                UNROLL for (int j = 0; j < B; ++j) {
                    real total = 0;
                    UNROLL for (int m = j; m < B; ++m) total -= s[i][m] * l[m][j];
                    a[at(I * B + i, J * B + j) * TILE] = total;
                }
        }
        UNROLL for (int i = 0; i < B; ++i)
            UNROLL for (int j = 0; j <= i; ++j) a[at(J * B + i, J * B + j) * TILE] = l[i][j];
    }
}

// Replace M by r (noise M'M + u u').
__device__ void second_moment(real *a, real r, real noise) {
    UNROLL_BY(1) for (int I = 0; I < N_BLOCKS; ++I) {
        real m[B][B], u[B];
        UNROLL for (int i = 0; i < B; ++i) {
            u[i] = r * a[(SYSTEM + I * B + i) * TILE];
            UNROLL for (int j = 0; j <= i; ++j) m[i][j] = a[at(I * B + i, I * B + j) * TILE];
        }
        UNROLL_BY(1) for (int J = 0; J <= I; ++J) {
            real s[B][B] = {};
            UNROLL for (int k = 0; k < B; ++k) {
                real y[B];
                UNROLL for (int j = 0; j < B; ++j)
                    y[j] = J < I ? a[at(I * B + k, J * B + j) * TILE] : (j <= k ? m[k][j <= k ? j : 0] : real(0));
                UNROLL for (int i = 0; i <= k; ++i)
                    UNROLL for (int j = 0; j < B; ++j) s[i][j] += m[k][i] * y[j];
            }
            UNROLL_BY(5) for (int k = (I + 1) * B; k < P; ++k) {
                real x[B], y[B];
                UNROLL for (int i = 0; i < B; ++i) {
                    x[i] = a[at(k, I * B + i) * TILE];
                    y[i] = a[at(k, J * B + i) * TILE];
                }
                UNROLL for (int i = 0; i < B; ++i)
                    UNROLL for (int j = 0; j < B; ++j) s[i][j] += x[i] * y[j];
            }
            const real scale = r * noise;
            UNROLL for (int i = 0; i < B; ++i)
                UNROLL for (int j = 0; j < B; ++j)
                    if (J < I || j <= i)
                        a[at(I * B + i, J * B + j) * TILE] =
                            scale * s[i][j] + u[i] * a[(SYSTEM + J * B + j) * TILE];
        }
    }
}

// Compute log evidences (T,), up to terms that all components share, and the posterior means of w - b if `weights` (D, T)
// is not null.
extern "C" __global__ void __launch_bounds__(128) evidence(
    const stored *__restrict__ products, long long T, const real *__restrict__ ridge, const real *__restrict__ b,
    real noise, real constant, real *__restrict__ joint,
    real *__restrict__ weights) {
    extern __shared__ real shared[];
    real *a = shared + threadIdx.x;
    for (long long first = (long long)blockIdx.x * TILE; first < T; first += (long long)gridDim.x * TILE) {
        const long long t = first + threadIdx.x;
        if (threadIdx.x < TILE && t < T) {
            const real square = load_system(products, T, t, ridge, b, a);
            const real log_determinant = factor(a);
            const real left = fmax(square - explained(a), real(0));
            joint[t] = constant - real(0.5) * (log_determinant + left / noise);
            if (weights != nullptr) {
                solve_back(a);
                for (int i = 0; i < D; ++i) weights[i * T + t] = a[(SYSTEM + i) * TILE];
            }
        }
    }
}

// Sum r (noise F^-1 + u u'), r u, r and r ||residual||^2 over the N tasks at the positions `index` (all T tasks if it is null),
// into one row of `partial` (grid, SYSTEM + P + 2) per block.
extern "C" __global__ void __launch_bounds__(128) moments(
    const stored *__restrict__ products, long long T, const real *__restrict__ ridge, const real *__restrict__ b,
    real noise, real constant, const long long *__restrict__ index, long long N,
    const real *__restrict__ responsibilities, real *__restrict__ joint, real *__restrict__ partial) {
    extern __shared__ real shared[];
    constexpr int ROWS = SYSTEM + P;
    constexpr int OWN = (ROWS + 127) / 128;
    real *a = shared + threadIdx.x;
    real own[OWN] = {};
    real count = 0, residual = 0;
    for (long long first = (long long)blockIdx.x * TILE; first < N; first += (long long)gridDim.x * TILE) {
        if (threadIdx.x < TILE) {
            if (first + threadIdx.x < N) {
                const long long t = index == nullptr ? first + threadIdx.x : index[first + threadIdx.x];
                const real r = responsibilities == nullptr ? real(1) : responsibilities[t];
                const real square = load_system(products, T, t, ridge, b, a);
                const real log_determinant = factor(a);
                const real left = fmax(square - explained(a), real(0));
                if (joint != nullptr) joint[t] = constant - real(0.5) * (log_determinant + left / noise);
                count += r;
                residual += r * left;
                solve_back(a);
                invert_factor(a);
                second_moment(a, r, noise);
                for (int i = 0; i < P; ++i) a[(SYSTEM + i) * TILE] *= r;
            } else {
                for (int e = 0; e < ROWS; ++e) a[e * TILE] = 0;
            }
        }
        __syncthreads();
        UNROLL for (int o = 0; o < OWN; ++o) {
            const int e = threadIdx.x + o * 128;
            if (e < ROWS) {
                real total = 0;
                // threads start at different elements to avoid bank conflicts
                int s = e % TILE;
                for (int i = 0; i < TILE; ++i) {
                    total += shared[e * TILE + s];
                    s = s + 1 == TILE ? 0 : s + 1;
                }
                own[o] += total;
            }
        }
        __syncthreads();
    }
    real *out = partial + (long long)blockIdx.x * (ROWS + 2);
    for (int o = 0; o < OWN; ++o)
        if (threadIdx.x + o * 128 < ROWS) out[threadIdx.x + o * 128] = own[o];
    // sums of the block, in the order of its threads
    shared[threadIdx.x] = count;
    shared[128 + threadIdx.x] = residual;
    __syncthreads();
    if (threadIdx.x < 2) {
        real total = 0;
        for (int i = 0; i < 128; ++i) total += shared[threadIdx.x * 128 + i];
        out[ROWS + threadIdx.x] = total;
    }
}

// Compute the products of the scaled rows of each task from X (N, D - INTERCEPT) and y (N,).  Task t has the rows
// offsets[t] .. offsets[t + 1] - 1.  `shift` and `scale` (D + 1,) scale columns and target.
//
// A warp processes one task.  Each lane sums a few tiles of 3 x 3 products, so that 6 loads are enough for 9 products.
constexpr int SIDE = 3;
constexpr int N_SIDES = (D + SIDE) / SIDE;          // tiles along the D + 1 columns
constexpr int N_TILES = N_SIDES * (N_SIDES + 1) / 2;
constexpr int OWN_TILES = (N_TILES + 31) / 32;
constexpr int WIDTH = N_SIDES * SIDE;               // width of a row in shared memory, padded with zeros
constexpr int AHEAD = 8;                            // rows loaded at once
extern "C" __global__ void __launch_bounds__(256) products_of_rows(
    const stored *__restrict__ X, const stored *__restrict__ y, const long long *__restrict__ offsets, long long T,
    const real *__restrict__ shift, const real *__restrict__ scale, stored *__restrict__ products) {
    constexpr int GIVEN = D - INTERCEPT;
    extern __shared__ real shared[];   // PRODUCTS * (GROUP + 1), then AHEAD rows for each of 8 warps
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    real *rows = shared + PRODUCTS * (GROUP + 1) + warp * AHEAD * WIDTH;
    int row[OWN_TILES], column[OWN_TILES];
    UNROLL for (int o = 0; o < OWN_TILES; ++o) {
        const int tile = min(lane + 32 * o, N_TILES - 1);
        int i = 0;
        while (at(i + 1, 0) <= tile) ++i;
        row[o] = i * SIDE;
        column[o] = (tile - at(i, 0)) * SIDE;
    }
    for (int i = lane; i < AHEAD * WIDTH; i += 32) rows[i] = 0;
    for (long long first = (long long)blockIdx.x * GROUP; first < T; first += (long long)gridDim.x * GROUP) {
        for (int g = warp; g < GROUP; g += 8) {
            const long long t = first + g;
            real total[OWN_TILES][SIDE][SIDE] = {};
            const long long begin = t < T ? offsets[t] : 0, end = t < T ? offsets[t + 1] : 0;
            for (long long n = begin; n < end; n += AHEAD) {
                const int here = (int)min((long long)AHEAD, end - n);
                __syncwarp();
                for (int i = lane; i < AHEAD * GIVEN; i += 32)
                    rows[i / GIVEN * WIDTH + i % GIVEN] =
                        i < here * GIVEN ? (X[n * GIVEN + i] - shift[i % GIVEN]) * scale[i % GIVEN] : real(0);
                if (lane < AHEAD) {
                    if (INTERCEPT) rows[lane * WIDTH + D - 1] = lane < here ? real(1) : real(0);
                    rows[lane * WIDTH + D] = lane < here ? (y[n + lane] - shift[D]) * scale[D] : real(0);
                }
                __syncwarp();
                UNROLL for (int h = 0; h < AHEAD; ++h)
                    UNROLL for (int o = 0; o < OWN_TILES; ++o)
                        UNROLL for (int i = 0; i < SIDE; ++i)
                            UNROLL for (int j = 0; j < SIDE; ++j)
                                total[o][i][j] += rows[h * WIDTH + row[o] + i] * rows[h * WIDTH + column[o] + j];
            }
            UNROLL for (int o = 0; o < OWN_TILES; ++o)
                UNROLL for (int i = 0; i < SIDE; ++i)
                    UNROLL for (int j = 0; j < SIDE; ++j) {
                        const int r = row[o] + i, c = column[o] + j;
                        if (lane + 32 * o < N_TILES && r <= D && c <= r) shared[at(r, c) * (GROUP + 1) + g] = total[o][i][j];
                    }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < PRODUCTS * GROUP; i += 256) {
            const int e = i / GROUP, g = i % GROUP;
            if (first + g < T) products[e * T + first + g] = shared[e * (GROUP + 1) + g];
        }
        __syncthreads();
    }
}
