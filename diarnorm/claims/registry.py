"""The claims about norms, the experiments that test them, and what would confirm or refute each, fixed beforehand."""

from diarnorm.claims.rules import GIVEN, STUDY, TIMED, Claim, Criterion, Experiment

PRACTICE = "common advice to practitioners"

CLAIMS = (
    Claim(
        1,
        "RMSNorm is LayerNorm without the mean",
        "B. Zhang and R. Sennrich, 2019",
        (Experiment("definition", "definition", "definition"),),
        (
            Criterion("centred_difference", "on rows of mean 0 both give the same", high=1e-12),
            Criterion("law_deviation", "an offset c shrinks the rest by 1/sqrt(1 + c^2)", high=1e-12),
            Criterion("rms_scale_change", "as eps goes to 0, a factor changes nothing", high=1e-12),
            Criterion("layer_offset_change", "LayerNorm does not see an offset at all", high=1e-12),
            Criterion("uncentred_difference", "on rows with a mean as large as their spread they differ", low=0.1),
        ),
    ),
    Claim(
        2,
        "RMSNorm takes 7 to 64 % less time than LayerNorm",
        "B. Zhang and R. Sennrich, 2019",
        (Experiment("time", "timing", "time_ratios", TIMED, "TimeConfig"),),
        (
            Criterion("ratio_fused", "as one kernel: time over LayerNorm's", high=0.93),
            Criterion("ratio_eager", "as torch's six operators", high=0.93),
            Criterion("ratio_torch", "as torch's F.rms_norm", high=0.93),
            Criterion("ratio_compiled", "by torch.compile", high=0.93),
            Criterion("ratio_onnx", "in ONNX Runtime, against its LayerNorm", high=0.93),
            Criterion("ratio_step", "a streaming step of the whole model", high=0.93),
        ),
    ),
    Claim(
        3,
        "Batch size does not matter to RMSNorm and LayerNorm",
        "J. L. Ba et al., 2016; B. Zhang and R. Sennrich, 2019",
        (Experiment("batch_size", "batchsize", "batch_size"),),
        (
            Criterion("rms_changed", "RMSNorm: numbers of a row that a batch changes, both directions", high=0),
            Criterion("layer_changed", "LayerNorm: the same", high=0),
            Criterion("encoder_batch", "encoder: change of a row in a batch, relative", high=1e-6),
            Criterion("encoder_padding", "encoder: change by padding of 0, 1000 or NaN, relative", high=1e-5),
            Criterion("encoder_chunks", "encoder: change by chunks against the whole, relative", high=1e-5),
        ),
    ),
    Claim(
        4,
        "eps protects silence",
        PRACTICE,
        (Experiment("silence", "silence", "silence"),),
        (
            Criterion("zero_gradient_gain", "gradient through a row of zeros is not blown up (gain at 1e-5)", high=10),
            Criterion("zero_not_finite", "outputs for zeros that are not finite, any dtype and eps", high=0),
            Criterion("floor_output", "a silent log-mel frame becomes silent: RMSNorm's output", high=0.1),
            Criterion("model_not_finite", "outputs of the model on zeros that are not finite", high=0),
            Criterion("false_alarm", "speech that the model hears in silence", high=1.0, unit="% of the time"),
            Criterion("model_gradient_gain", "gradient on silence over that on speech", high=10),
        ),
    ),
    Claim(
        5,
        "RMSNorm levels loudness, and lets a DC offset pass",
        PRACTICE,
        (Experiment("levels", "levels", "levels"),),
        (
            Criterion(
                "rms_gain",
                "20 dB less on the microphone changes RMSNorm's output, fixed mean and spread of log-mel: by",
                high=5,
                unit="%",
            ),
            Criterion("rms_factor", "a factor on the features: by", high=1, unit="%"),
            Criterion(
                "rms_gain_frame", "the same behind a front end that takes each frame's mean: by", high=5, unit="%"
            ),
            Criterion("rms_gain_ema", "the same behind a running mean, after 15 s: by", high=5, unit="%"),
            Criterion("rms_offset", "an offset of the features passes RMSNorm: changed by", low=5, unit="%"),
            Criterion("layer_offset", "LayerNorm takes it out: changed by", high=1, unit="%"),
            Criterion("rms_dc", "DC on the microphone (0.1) passes RMSNorm: changed by", low=5, unit="%"),
            Criterion("rms_dc_kept", "the same in a filter bank that does not take DC out: by", low=5, unit="%"),
        ),
    ),
    Claim(
        6,
        "Without RMSNorm, loud bursts dominate attention",
        PRACTICE,
        (Experiment("bursts", "bursts", "bursts", GIVEN, "BurstConfig", "models"),),
        (
            Criterion(
                "pull_plosive_rms", "norm=rms: attention on a plosive of +20 dB, over that on the same frames", high=1.5
            ),
            Criterion("pull_plosive_none", "norm=none: the same", low=2.0),
            Criterion("pull_plosive_layer", "norm=layer: the same", low=2.0),
            Criterion("pull_plosive_batch", "norm=batch: the same", low=2.0),
            Criterion(
                "pull_slam_rms", "norm=rms: attention on a slam of +20 dB, over that on the same frames", high=1.5
            ),
            Criterion("pull_slam_none", "norm=none: the same", low=2.0),
            Criterion("pull_slam_layer", "norm=layer: the same", low=2.0),
            Criterion("pull_slam_batch", "norm=batch: the same", low=2.0),
        ),
    ),
    Claim(
        7,
        "BatchNorm collapses at small batches, and train mode is not eval mode",
        "S. Ioffe and C. Szegedy, 2015; S. Wu and K. He, 2018",
        (
            Experiment("batchnorm_gap", "batchnorm", "batchnorm_gap"),
            Experiment("batchnorm_modes", "modes", "batchnorm_modes", GIVEN, "ModesConfig", "models"),
        ),
        (
            Criterion("gap_2", "train against eval at 2 frames", low=50, unit="%"),
            Criterion("gap_128", "at 128 independent frames", low=5, unit="%"),
            Criterion("gap_128_correlated", "at 128 drawn frames, neighbours correlated by 0.95", low=20, unit="%"),
            Criterion("gap_padding", "torch's own with half of the frames padding", low=10, unit="%"),
            Criterion("gap_masked", "the same with padding left out of the statistics", low=10, unit="%"),
            Criterion("der_of_train_mode", "DER of train mode less that of eval mode", low=1, unit="points"),
        ),
    ),
    Claim(
        8,
        "Pre-norm trains more stably",
        "R. Xiong et al., 2020",
        (Experiment("placement", "placement", "placement", STUDY, "StudyConfig"),),
        (
            Criterion(
                "post_diverged", "post-norm runs that diverge, 24 blocks, beyond pre-norm's", low=10, unit="points"
            ),
            Criterion("pre_diverged", "pre-norm runs that diverge, 24 blocks", high=30, unit="%"),
            Criterion("gradient_ratio_post", "gradient of the last block over the first, post-norm", low=2),
            Criterion("gradient_ratio_pre", "the same, pre-norm", low=0.2, high=5),
            Criterion(
                "pre_without_norm",
                "it is the placement and not the norm: pre-norm runs without any norm that diverge",
                high=50,
                unit="%",
            ),
        ),
    ),
    Claim(
        9,
        "BatchNorm allows 5 to 10 times the learning rate",
        "S. Ioffe and C. Szegedy, 2015",
        (Experiment("learning_rate", "rates", "learning_rates", STUDY, "StudyConfig"),),
        (
            Criterion("batch_over_none", "largest stable learning rate over that of no norm", low=5),
            Criterion("batch_over_rms", "over RMSNorm's", low=5),
            Criterion("batch_over_layer", "over LayerNorm's", low=5),
        ),
    ),
    Claim(
        10,
        "Half precision needs eps 1e-4",
        PRACTICE,
        (Experiment("half_precision", "halves", "half_precision"),),
        (
            Criterion("wide_wrong", "with sums in float32, eps 1e-5 fails: wrong results of all", low=1, unit="%"),
            Criterion(
                "narrow_repaired", "with sums in float16, eps 1e-4 repairs: wrong results of all", high=0, unit="%"
            ),
            Criterion("loss_db", "1e-4 costs nothing: level lost at -40 dB", high=0.5, unit="dB"),
            Criterion(
                "gradient_not_finite", "at 1e-5 float16 gradients of a silent row overflow: of all", low=1, unit="%"
            ),
        ),
    ),
    Claim(
        11,
        "Never swap the norm of a trained model",
        f"{PRACTICE}; against it Z. Jiang et al., 2023",
        (
            Experiment("swap", "swap", "swap"),
            Experiment("finetuning", "finetuning", "finetuning", STUDY, "FinetuneConfig", "data"),
        ),
        (
            Criterion("naive_error", "LayerNorm replaced by RMSNorm: output error", low=5, unit="%"),
            Criterion("exact_error", "the same with centred writers and folded offsets", low=5, unit="%"),
            Criterion("naive_der", "after fine-tuning, DER of the plain swap less that of none", low=1, unit="points"),
            Criterion("exact_der", "DER of the exact swap less that of none", low=1, unit="points"),
            Criterion("frozen_der", "DER with all but the norms frozen, less that of none", low=1, unit="points"),
        ),
    ),
    Claim(
        12,
        "RMSNorm matches LayerNorm's quality",
        "B. Zhang and R. Sennrich, 2019",
        (Experiment("quality", "quality", "quality", GIVEN, "QualityConfig", "evaluation"),),
        (
            Criterion("rms_less_layer", "DER of RMSNorm less that of LayerNorm", high=1.0, unit="points"),
            Criterion("rms_less_layer_seeds", "the same, over seeds (Student's t)", high=1.0, unit="points"),
        ),
    ),
    Claim(
        13,
        "Fused kernels matter because norms are bound by memory",
        "documentation of fused kernels",
        (Experiment("bandwidth", "bandwidth", "bandwidth", TIMED, "BandwidthConfig"),),
        (
            Criterion("large_share", "one kernel, calls of 8 MB and more: share of copy bandwidth", low=60, unit="%"),
            Criterion("large_speedup", "there it is faster than six operators, times", low=1.5),
            Criterion("small_share", "calls of a stream (16 frames): share of copy bandwidth", low=60, unit="%"),
        ),
    ),
    Claim(
        14,
        "gamma must start at 1 and beta at 0",
        PRACTICE,
        (Experiment("start", "start", "starts", STUDY, "StudyConfig"),),
        (
            Criterion("gamma_0.3", "gamma starts at 0.3: loss at the end, over that of 1", low=1.02),
            Criterion("gamma_3", "at 3: the same", low=1.02),
            Criterion("gamma_0.03", "at 0.03: the same", low=1.02),
            Criterion("gamma_30", "at 30: the same", low=1.02),
            Criterion("beta_1", "beta is drawn from a standard normal distribution: the same", low=1.02),
        ),
    ),
)


def chosen(numbers: tuple[int, ...]) -> list[Claim]:
    """Claims by number, in their order.

    Raises:
        ValueError: there is none of a number.
    """
    known = {claim.number: claim for claim in CLAIMS}
    for wanted in numbers:
        if wanted not in known:
            raise ValueError(f"there is no claim {wanted}: give numbers from 1 to {len(CLAIMS)}, or all")
    return [known[wanted] for wanted in sorted(set(numbers))]
