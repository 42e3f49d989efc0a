"""Images read as sequences: MNIST, Fashion-MNIST, CIFAR-10, digits."""
