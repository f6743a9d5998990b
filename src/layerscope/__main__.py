"""`python -m layerscope`, and so `accelerate launch -m layerscope`."""

from layerscope.cli import main

if __name__ == "__main__":
    main()
