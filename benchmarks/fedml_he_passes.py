"""FedML-HE's scores by the algorithm of SenseCrypt's App. O: one backward pass for each parameter and each label.

    python benchmarks/fedml_he_passes.py [--passes 2000]

J_m(y_k) is the derivative of a parameter's gradient by a label, so App. O counts N_w x N_b passes: 50,890 parameters
and 200 examples for Table 4. This measures that many passes as `--passes` says, one after the other, and multiplies.
`baselines.fedml_he_sensitivity` gets the same map from one backward pass an example. CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

EXAMPLES, CLASSES = 200, 10


def seconds_a_pass(passes: int) -> tuple[float, int]:
    """CPU seconds of one pass, and the number of parameters."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))
    labels = torch.nn.functional.one_hot(torch.arange(EXAMPLES) % CLASSES, CLASSES).float().requires_grad_()
    scores = torch.log_softmax(model(torch.rand(EXAMPLES, 784)), 1)
    weights = [*model.parameters()]
    found = torch.autograd.grad(-(labels * scores).mean(), weights, create_graph=True)
    gradient = torch.cat([part.flatten() for part in found])
    start = time.process_time()
    for m in range(passes):
        torch.autograd.grad(gradient[m % len(gradient)], labels, retain_graph=True)
    return (time.process_time() - start) / passes, len(gradient)


def main() -> int:
    """Prints the seconds of a pass and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=2000, help="how many to measure")
    options = parser.parse_args()
    if options.passes < 1:
        parser.error(f"--passes {options.passes} must be 1 or more")
    one, parameters = seconds_a_pass(options.passes)
    print(f"{one * 1e3:.3f} ms a pass (CPU, one thread), {parameters:,} parameters, {EXAMPLES} examples")
    print(f"{one * parameters / 3600:.2f} h where one pass gives the labels of all examples")
    print(f"{one * parameters * EXAMPLES / 3600:.2f} h by one pass a label; the paper: 4.78 h (17214.75 s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
