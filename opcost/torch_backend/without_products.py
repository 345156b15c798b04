"""ATen operations that multiply no matrices, besides those that torch tags as pointwise."""

from __future__ import annotations

QUANTISED = (
    "add add_out add_relu add_relu_out add_scalar add_scalar_out add_scalar_relu add_scalar_relu_out mul mul_out "
    "mul_relu mul_relu_out mul_scalar mul_scalar_out mul_scalar_relu mul_scalar_relu_out cat cat_out cat_relu "
    "cat_relu_out batch_norm batch_norm_relu batch_norm1d batch_norm1d_relu batch_norm2d batch_norm2d_relu "
    "batch_norm3d batch_norm3d_relu layer_norm group_norm instance_norm softmax sigmoid celu elu clamp dropout "
    "hardswish leaky_relu prelu relu6 threshold max_pool1d max_pool2d embedding_byte embedding_4bit embedding_bag_byte "
    "embedding_bag_4bit"
).split()
"""Those of the namespace ``quantized``, without it."""

WITHOUT_PRODUCTS = frozenset(
    # elementwise, but not tagged as pointwise in every version
    "hardswish hardswish_ hardsigmoid hardsigmoid_ hardtanh hardtanh_ leaky_relu leaky_relu_ elu elu_ celu celu_ "
    "threshold threshold_ glu log_sigmoid_forward _prelu_kernel floor_divide floor_divide_ masked_fill masked_fill_ "
    "bernoulli complex polar rsub linalg_cross addr rrelu_with_noise rrelu_with_noise_ _softmax_backward_data "
    "_log_softmax_backward_data _thnn_fused_lstm_cell _thnn_fused_gru_cell "
    # normalisation, softmax
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm "
    "miopen_batch_norm _batch_norm_with_update native_group_norm native_layer_norm _fused_rms_norm "
    "linalg_vector_norm norm "
    "_weight_norm_interface _softmax _log_softmax _safe_softmax logsumexp _logcumsumexp "
    # pooling, interpolation
    "avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d max_pool2d_with_indices max_pool3d_with_indices "
    "adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d max_unpool2d max_unpool3d "
    "grid_sampler_2d grid_sampler_3d cudnn_grid_sampler upsample_nearest1d upsample_nearest2d "
    "upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d "
    "upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa roi_align roi_pool ps_roi_align ps_roi_pool "
    # reductions, searches
    "sum mean amax amin aminmax max min any all prod argmax argmin cumsum cumprod cummax cummin _cummax_helper "
    "_cummin_helper var std var_mean std_mean median nanmedian kthvalue mode topk sort nonzero bincount histc "
    "bucketize searchsorted isin _unique _unique2 unique_consecutive unique_dim unique_dim_consecutive multinomial "
    "equal nms _linalg_check_errors _assert_async mse_loss smooth_l1_loss huber_loss nll_loss_forward "
    "nll_loss2d_forward binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss multi_margin_loss "
    "multilabel_margin_loss_forward _ctc_loss dist allclose count_nonzero nansum nanmean trace histogram "
    "_histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors segment_reduce hash_tensor renorm "
    "_pdist_forward logcumsumexp nonzero_static "
    # moving
    "block_diag clone copy copy_ _to_copy cat stack repeat repeat_interleave roll flip rot90 constant_pad_nd "
    "reflection_pad1d "
    "reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d im2col col2im "
    "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle index index_select index_put index_put_ "
    "_unsafe_index _index_put_impl_ index_add index_add_ index_copy index_copy_ index_reduce index_reduce_ gather "
    "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ take put put_ masked_select "
    "masked_scatter masked_scatter_ embedding embedding_renorm_ _embedding_bag _embedding_bag_forward_only tril tril_ "
    "triu triu_ "
    "slice_backward select_backward embedding_dense_backward index_backward reflection_pad1d_backward "
    "reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward "
    "replication_pad3d_backward upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward "
    "upsample_bilinear2d_backward avg_pool2d_backward native_layer_norm_backward "
    "native_group_norm_backward native_batch_norm_backward "
    "diag_embed slice_scatter select_scatter diagonal_scatter as_strided_scatter _unsafe_masked_index "
    "_unsafe_masked_index_put_accumulate _chunk_cat unfold_backward max_pool2d_with_indices_backward lu_unpack "
    "expand_copy diagonal_copy alias_copy as_strided_copy narrow_copy view_copy permute_copy split_copy "
    "split_with_sizes_copy unbind_copy unfold_copy squeeze_copy unsqueeze_copy transpose_copy t_copy detach_copy "
    "slice_copy select_copy _pack_padded_sequence _to_sparse _to_sparse_csr _to_sparse_csc "
    "_to_sparse_bsr _to_sparse_bsc _to_dense _jagged_to_padded_dense_forward convert_element_type "
    "_padded_dense_to_jagged_forward _nested_tensor_from_mask _nested_tensor_from_mask_left_aligned "
    "_nested_tensor_from_tensor_list to_padded_tensor "
    # filling
    "fill fill_ index_fill index_fill_ zero_ zeros ones full eye zeros_like ones_like full_like new_zeros new_ones "
    "_new_zeros_with_same_feature_meta "
    "new_full scalar_tensor arange linspace logspace tril_indices triu_indices hann_window hamming_window one_hot "
    # quantisation in training
    "_fused_moving_avg_obs_fq_helper fake_quantize_per_tensor_affine_cachemask "
    "fake_quantize_per_channel_affine_cachemask _fake_quantize_per_tensor_affine_cachemask_tensor_qparams "
    # quantised tensors
    "quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel dequantize int_repr quantized_max_pool1d "
    "quantized_max_pool2d quantized_max_pool3d quantized_batch_norm "
    # random numbers
    "normal_ uniform_ bernoulli_ random_ exponential_ rand randn randint randperm rand_like randn_like randint_like "
    "native_dropout normal cauchy_ geometric_ log_normal_".split()
    + [f"quantized::{name}" for name in QUANTISED]
)
"""Names of operations that move or combine elements. Outer products (``outer``, ``kron``, ``addr``) are elementwise.

The FLOPs of an operation that is neither listed here nor has a formula are unknown, not 0."""

FOR_EACH = "_foreach_"
"""The beginning of the names of operations that run an elementwise one on each tensor of a list."""
