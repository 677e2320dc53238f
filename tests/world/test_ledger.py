import pytest
from harness.ledger.account import account
from harness.ledger.file import parse, encode
from harness.run import ledgers as L
@pytest.mark.parametrize("entry,size,args,dl",[("every_kind",3,{},20),("branch",3,{},2),("missing_send",2,{},2),("swapped_receives",2,{},2),("reduces_otherwise",3,{},9),("past_it",2,{},9),("forks",2,{},9),("killed",2,{"call":True},9),("refused",2,{},9),("silent",2,{},9)])
def test_x(live, entry,size,args,dl):
    files={}; mark=[]
    def left(world, scratch):
        mark.append(world.mark)
        for r in range(size):
            raw=(scratch/f"rank-{r}/kept/collectives.ledger.bin").read_bytes()
            assert parse(encode(parse(raw)))==parse(raw)
        L.cut(scratch,size=size)
        for r in range(size): files[r]=(scratch/f"rank-{r}/kept/collectives.ledger.bin").read_bytes()
    lived=live("calling:"+entry,size=size,arguments=args,on_left=left,observe=True,deadline=dl)
    a=account(files,size=size,world=mark[0],asked={"x":range(size)})
    from harness.ledger.account import in_words, standing
    print()
    for r,s in enumerate(a["ranks"]): print(s, "|", standing(a,r))
    print(a["checks"])
    print(len(files[0]))
    for l,b in lived.capture.logs.items(): print(l,b.decode()[-600:])
    if entry=="forks": print([((e.ns-lived.capture.events[0].ns)/1e9,e.by,e.rank,e.name) for e in lived.capture.events])
    for l,b in lived.capture.stacks.items(): print(l,b.decode()[-1500:])
    for r in range(size): print(lived.error(r) and {k:lived.error(r)[k] for k in ("type","message","ours","source")})
    if entry=="every_kind":
        for c in parse(files[0]).calls: print(c)
