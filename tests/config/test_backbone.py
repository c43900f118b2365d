import pytest

from vitrail.config import BitConfig, ConvLayerConfig, ConvStemConfig, ResNetConfig
from vitrail.errors import UsageError


def test_strides_channels_and_feature_maps_of_a_resnet():
    root = ResNetConfig(blocks=())
    assert (root.stride, root.channels, root.feature_size((224, 100))) == (4, 64, (56, 25))
    resnet = ResNetConfig(blocks=(3, 4, 9))
    assert (resnet.stride, resnet.channels, resnet.feature_size((225, 224))) == (16, 1024, (15, 14))


def test_strides_channels_and_feature_maps_of_a_stem():
    stem = ConvStemConfig(layers=(ConvLayerConfig(channels=8), ConvLayerConfig(channels=24, kernel_size=5, stride=3)))
    assert (stem.stride, stem.channels, stem.feature_size((24, 13))) == (6, 24, (4, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ResNetConfig(blocks=(1,), width=10), "width is 10; wanted a multiple of the 32 groups of GroupNorm"),
        (lambda: ResNetConfig(blocks=(1,) * 60), "the backbone has 60 stages; wanted at most 8"),
        (
            lambda: ResNetConfig(blocks=(1,), standardisation="sdt"),
            "Unknown standardisation 'sdt'. Did you mean",
        ),
        (lambda: ResNetConfig(blocks=(1,), group_norm_epsilon=-1.0), "group_norm_epsilon is -1.0; wanted a number"),
        (lambda: ConvStemConfig(layers=()), "the stem has 0 layers; wanted 1 to 8"),
        (lambda: ConvLayerConfig(channels=0), "stem channels is 0; wanted a whole number from 1"),
        (lambda: BitConfig(blocks=(1, 1, 1, 0)), "blocks is 0; wanted a whole number from 1"),
        (lambda: BitConfig(blocks=(1, 1, 1, 1), pool_padding="ones"), "Unknown pool_padding 'ones'"),
        (lambda: BitConfig(blocks=(1, 1, 1, 1), num_classes=-1), "num_classes is -1; wanted a whole number from 0"),
    ],
)
def test_what_cannot_be_built_is_refused_before_it_is(make, message):
    with pytest.raises(UsageError) as caught:
        make()
    assert message in str(caught.value)
