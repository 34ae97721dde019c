"""`epida augment` as a Ray job; the options are the same, and submitting it again resumes it.

    ray job submit --working-dir . -- python jobs/augment.py s3://bucket/corpus/ --output s3://bucket/run
"""

import sys

from epida_ray.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "augment")
    main()
