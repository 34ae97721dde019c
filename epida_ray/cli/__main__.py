"""`python -m epida_ray.cli` is `epida`."""

from epida_ray.cli import main

main()
