from recombine.cli import main

main()
