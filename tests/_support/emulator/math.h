// What kernels use of <math.h>; the compiler's own takes longer to read than a kernel.
#pragma once
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()

extern "C" {
float floorf(float);
double floor(double);
float ceilf(float);
double ceil(double);
float roundf(float);
double round(double);
float fmaf(float, float, float);
double fma(double, double, double);
float ldexpf(float, int);
double ldexp(double, int);
double frexp(double, int*);
double nearbyint(double);
double fabs(double);
}
