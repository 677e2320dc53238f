"""The release gate: a policy applied to the signed reports of one commit; `decision` is where to
begin reading.
"""
