"""Names of kernels on screens, of kernels that ran on an H200."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcost.comparing.sweep_changes import short_kernel_name

SGEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (SGEMM, SGEMM),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_tn_align1>"
            "(cutlass_80_simt_sgemm_128x64_8x5_tn_align1::Params)",
            "cutlass_80_simt_sgemm_128x64_8x5_tn_align1",
        ),
        (
            "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, int>(int, float const*, long)",
            "at::native::max_pool_forward_nchw",
        ),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, false>(int)",
            "internal::gemvx::kernel",
        ),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&)",
            "at::native::elementwise_kernel",
        ),
    ],
)
def test_a_kernel_is_named_by_its_function(name: str, short: str) -> None:
    assert short_kernel_name(name) == short


@given(st.text())
def test_a_name_of_any_form_is_no_longer_than_before(name: str) -> None:
    assert len(short_kernel_name(name)) <= len(name)
